//! The text form of layouts.

use crate::ParseError;
use model::{Component, IndexSpace, Layout};
use std::ops::Range;

/// Reads a layout: the paper's form `<x_in=4, F, x_in2=8, x_out>`, fastest first; or the names of
/// all dimensions, slowest first with the fields innermost, as `nchw` (one letter each) or
/// `batch,row`. Blanks around tokens don't count.
///
/// A token that is a dimension's name means that dimension, even if it ends in `_out`.
///
/// # Errors
/// [`ParseError`] with the bytes of the first wrong token, or an empty span at the place where
/// something is missing.
pub fn parse(text: &str, space: &IndexSpace) -> Result<Layout, ParseError> {
    let inside = trimmed(text, 0..text.len());
    let reader = Reader { text, space };
    if text[inside.clone()].starts_with('<') { reader.vector(inside) } else { reader.names(inside) }
}

/// The names of dimensions, slowest first: `nhwc` (one letter each) or `batch,row`.
#[must_use]
pub fn dim_names(text: &str) -> Vec<String> {
    let whole = 0..text.len();
    let several = text.contains(',');
    let pieces = if several { split_at_commas(text, whole) } else { letters(text, whole) };
    pieces.into_iter().map(|piece| text[piece].to_owned()).collect()
}

/// One token and where it stands.
type Token = (Component, Range<usize>);

struct Reader<'a> {
    text: &'a str,
    space: &'a IndexSpace,
}

impl Reader<'_> {
    /// `<…>` at `span`.
    fn vector(&self, span: Range<usize>) -> Result<Layout, ParseError> {
        let open = span.start + 1;
        let Some(close) = self.text[open..span.end].find('>').map(|at| open + at) else {
            return wrong(span.end..span.end, "`>`");
        };
        if close + 1 < span.end {
            return wrong(trimmed(self.text, close + 1..span.end), "nothing after `>`");
        }
        let tokens = self.tokens(open..close)?;
        self.check(&tokens, close)?;
        self.layout(tokens.into_iter().map(|t| t.0), span)
    }

    /// The comma-separated components of `span`.
    fn tokens(&self, span: Range<usize>) -> Result<Vec<Token>, ParseError> {
        let pieces = split_at_commas(self.text, span);
        pieces.into_iter().map(|piece| Ok((self.component(piece.clone())?, piece))).collect()
    }

    /// One component: `F`, `x`, `x_in=4`, `x_in2=4` or `x_out`.
    fn component(&self, span: Range<usize>) -> Result<Component, ParseError> {
        let token = &self.text[span.clone()];
        if token == "F" {
            return Ok(Component::Fields);
        }
        if let Some(dim) = self.dim(token) {
            return Ok(Component::Whole(dim));
        }
        if let Some(equals) = token.find('=') {
            return self.inner(span.clone(), span.start + equals);
        }
        match token.strip_suffix("_out").and_then(|name| self.dim(name)) {
            Some(dim) => Ok(Component::Outer(dim)),
            None => wrong(span, &self.expected_component()),
        }
    }

    /// `x_in=4` or `x_in2=4` at `span`, with its `=` at `equals`.
    fn inner(&self, span: Range<usize>, equals: usize) -> Result<Component, ParseError> {
        let name = trimmed(self.text, span.start..equals);
        let number = trimmed(self.text, equals + 1..span.end);
        let Some((dim, level)) = self.inner_name(&self.text[name.clone()]) else {
            return wrong(name, &self.expected_inner());
        };
        let digits = &self.text[number.clone()];
        let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        match digits.parse::<u64>() {
            Ok(size) if is_number && size > 0 => Ok(Component::Inner { dim, level, size }),
            _ => wrong(number, "a block size of 1 or more"),
        }
    }

    /// The dimension and level of `x_in` or `x_in2`.
    fn inner_name(&self, name: &str) -> Option<(u8, u8)> {
        let (dim, level) = name.rsplit_once("_in")?;
        let level = match level {
            "" => 1,
            _ if level.starts_with('0') => return None,
            _ => level.parse().ok().filter(|&level| level >= 2)?,
        };
        Some((self.dim(dim)?, level))
    }

    fn dim(&self, name: &str) -> Option<u8> {
        self.space.position(name).and_then(|dim| u8::try_from(dim).ok())
    }

    /// Holds the rules of a layout vector, so that an error points at a token; what is missing is
    /// missing at `end`.
    fn check(&self, tokens: &[Token], end: usize) -> Result<(), ParseError> {
        for (i, (component, span)) in tokens.iter().enumerate() {
            if tokens[..i].iter().any(|(earlier, _)| self.clash(*earlier, *component)) {
                return wrong(span.clone(), "each part of a dimension and `F` once only");
            }
        }
        self.check_levels(tokens)?;
        match self.missing(tokens) {
            Some(missing) => wrong(end..end, &format!("`{missing}`")),
            None => Ok(()),
        }
    }

    /// Whether two components can't stand in one layout.
    fn clash(&self, a: Component, b: Component) -> bool {
        let same_level = match (a, b) {
            (Component::Inner { level: a, .. }, Component::Inner { level: b, .. }) => a == b,
            (Component::Inner { .. }, Component::Outer(_)) => false,
            (Component::Outer(_), Component::Inner { .. }) => false,
            _ => true,
        };
        a.dim() == b.dim() && same_level
    }

    /// Levels count up from 1 without gaps.
    fn check_levels(&self, tokens: &[Token]) -> Result<(), ParseError> {
        let has = |dim, level| {
            tokens.iter().any(|(c, _)| {
                matches!(*c, Component::Inner { dim: d, level: l, .. } if d == dim && l == level)
            })
        };
        for (component, span) in tokens {
            match *component {
                Component::Inner { dim, level, .. } if level > 1 && !has(dim, level - 1) => {
                    let name = self.name(usize::from(dim));
                    let below = if level == 2 { String::new() } else { (level - 1).to_string() };
                    return wrong(span.clone(), &format!("`{name}_in{below}=…` as well"));
                }
                Component::Outer(dim) if !has(dim, 1) => {
                    let name = self.name(usize::from(dim));
                    return wrong(span.clone(), &format!("`{name}`, or `{name}_in=…` as well"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// What a complete layout has besides `tokens`.
    fn missing(&self, tokens: &[Token]) -> Option<String> {
        let of_dim = |d| tokens.iter().filter(move |(c, _)| c.dim() == Some(d));
        for dim in 0..self.space.rank() {
            let is_inner = |t: &Token| matches!(t.0, Component::Inner { .. });
            if of_dim(dim).next().is_none() {
                return Some(self.name(dim).to_owned());
            }
            if of_dim(dim).all(is_inner) {
                return Some(format!("{}_out", self.name(dim)));
            }
        }
        (!tokens.iter().any(|(c, _)| *c == Component::Fields)).then(|| "F".to_owned())
    }

    /// `nchw` or `batch,row` at `span`.
    fn names(&self, span: Range<usize>) -> Result<Layout, ParseError> {
        let text = &self.text[span.clone()];
        let pieces = if text.contains(',') || self.dim(text).is_some() {
            split_at_commas(self.text, span.clone())
        } else {
            letters(self.text, span.clone())
        };
        let mut components = vec![Component::Fields];
        for piece in pieces {
            let component = match self.dim(&self.text[piece.clone()]) {
                Some(dim) => Component::Whole(dim),
                None => return wrong(piece, &self.expected_dim()),
            };
            if components.contains(&component) {
                return wrong(piece, "each dimension once only");
            }
            components.insert(1, component);
        }
        let whole = |dim: &usize| u8::try_from(*dim).map(Component::Whole);
        let missing = (0..self.space.rank())
            .find(|dim| whole(dim).is_ok_and(|component| !components.contains(&component)));
        match missing {
            Some(dim) => wrong(span.end..span.end, &format!("`{}`", self.name(dim))),
            None => self.layout(components, span),
        }
    }

    fn layout(
        &self,
        components: impl IntoIterator<Item = Component>,
        span: Range<usize>,
    ) -> Result<Layout, ParseError> {
        Layout::new(components, self.space.rank())
            .map_err(|e| ParseError { span, expected: e.to_string() })
    }

    fn name(&self, dim: usize) -> &str {
        &self.space.dims()[dim].name
    }

    fn all_names(&self) -> String {
        let names: Vec<&str> = self.space.dims().iter().map(|d| &*d.name).collect();
        names.join(", ")
    }

    fn expected_component(&self) -> String {
        format!("`F`, or one of {} whole or as `…_in=4` and `…_out`", self.all_names())
    }

    fn expected_inner(&self) -> String {
        format!("one of {} with `_in`, `_in2`, …", self.all_names())
    }

    fn expected_dim(&self) -> String {
        format!("one of {}", self.all_names())
    }
}

fn wrong<T>(span: Range<usize>, expected: &str) -> Result<T, ParseError> {
    Err(ParseError { span, expected: expected.to_owned() })
}

/// `span` without the blanks at its ends.
fn trimmed(text: &str, span: Range<usize>) -> Range<usize> {
    let inside = &text[span.clone()];
    let start = span.start + (inside.len() - inside.trim_start().len());
    start..start + inside.trim().len()
}

/// The pieces of `span` between commas, without blanks around them.
fn split_at_commas(text: &str, span: Range<usize>) -> Vec<Range<usize>> {
    let mut start = span.start;
    let mut pieces = Vec::new();
    for piece in text[span].split(',') {
        pieces.push(trimmed(text, start..start + piece.len()));
        start += piece.len() + 1;
    }
    pieces
}

fn letters(text: &str, span: Range<usize>) -> Vec<Range<usize>> {
    let start = span.start;
    text[span].char_indices().map(|(at, c)| start + at..start + at + c.len_utf8()).collect()
}
