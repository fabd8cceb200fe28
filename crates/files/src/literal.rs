//! Python literals, as far as NumPy writes them into headers.
//!
//! **Hazard.** A header is foreign text: deep nesting exhausts a stack, and a backtracking grammar
//! takes exponential time. **Guarantee.** One pass, no backtracking, nesting up to
//! [`MAX_DEPTH`], memory in proportion to the text.

/// The deepest nesting of lists, tuples and dicts.
pub(crate) const MAX_DEPTH: usize = 32;

/// A parsed literal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Literal {
    /// A string.
    Text(String),
    /// An integer.
    Integer(i128),
    /// `True` or `False`.
    Boolean(bool),
    /// `None`.
    Nothing,
    /// `[…]`.
    List(Vec<Literal>),
    /// `(…)`.
    Tuple(Vec<Literal>),
    /// `{…}`.
    Dict(Vec<(Literal, Literal)>),
}

impl Literal {
    /// The literal that `text` spells, but for white space around it.
    pub(crate) fn parse(text: &str) -> Result<Literal, String> {
        let mut parser = Parser { text, at: 0 };
        let value = parser.value(0)?;
        parser.skip_space();
        match parser.peek() {
            None => Ok(value),
            Some(c) => Err(parser.fault(&format!("unexpected `{c}`"))),
        }
    }

    /// The items of a list or tuple.
    pub(crate) fn items(&self) -> Option<&[Literal]> {
        match self {
            Literal::List(items) | Literal::Tuple(items) => Some(items),
            _ => None,
        }
    }

    /// The text of a string.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Literal::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A size: an integer from 0 on.
    pub(crate) fn size(&self) -> Option<u64> {
        match self {
            Literal::Integer(value) => u64::try_from(*value).ok(),
            _ => None,
        }
    }

    /// The value at a string key of a dict: the last one, as in Python, where it is there twice.
    pub(crate) fn get(&self, key: &str) -> Option<&Literal> {
        match self {
            Literal::Dict(pairs) => {
                pairs.iter().rev().find(|p| p.0.text() == Some(key)).map(|p| &p.1)
            }
            _ => None,
        }
    }
}

/// A Python string literal of `text`.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("'");
    for c in text.chars() {
        match c {
            '\\' | '\'' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\0'..='\x1f' => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            _ => out.push(c),
        }
    }
    out.push('\'');
    out
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

type Parsed<T> = Result<T, String>;

impl Parser<'_> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn next(&mut self) -> Parsed<char> {
        let c = self.peek().ok_or_else(|| self.fault("the text ends too early"))?;
        self.at += c.len_utf8();
        Ok(c)
    }

    fn skip_space(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn eat(&mut self, c: char) -> bool {
        self.skip_space();
        let found = self.peek() == Some(c);
        self.at += if found { c.len_utf8() } else { 0 };
        found
    }

    fn fault(&self, why: &str) -> String {
        format!("{why} at byte {}", self.at)
    }

    fn value(&mut self, depth: usize) -> Parsed<Literal> {
        if depth > MAX_DEPTH {
            return Err(self.fault("nested too deeply"));
        }
        self.skip_space();
        match self.next()? {
            '[' => Ok(Literal::List(self.items(']', depth)?.0)),
            '(' => self.parenthesis(depth),
            '{' => self.dict(depth),
            quote @ ('\'' | '"') => self.string(quote).map(Literal::Text),
            first => self.word(first),
        }
    }

    /// The items up to `close`, and whether a comma followed one.
    fn items(&mut self, close: char, depth: usize) -> Parsed<(Vec<Literal>, bool)> {
        let (mut items, mut comma) = (Vec::new(), false);
        while !self.eat(close) {
            if !items.is_empty() && !comma {
                return Err(self.fault("a comma is missing"));
            }
            items.push(self.value(depth + 1)?);
            comma = self.eat(',');
            if items.len() > 1 && !comma {
                return self.eat(close).then_some((items, true)).ok_or_else(|| self.missing(close));
            }
        }
        Ok((items, comma))
    }

    fn missing(&self, close: char) -> String {
        self.fault(&format!("`{close}` or a comma is missing"))
    }

    /// A tuple, or one value in parentheses.
    fn parenthesis(&mut self, depth: usize) -> Parsed<Literal> {
        let (mut items, comma) = self.items(')', depth)?;
        match items.pop() {
            Some(lone) if items.is_empty() && !comma => Ok(lone),
            last => {
                items.extend(last);
                Ok(Literal::Tuple(items))
            }
        }
    }

    fn dict(&mut self, depth: usize) -> Parsed<Literal> {
        let mut pairs = Vec::new();
        while !self.eat('}') {
            let key = self.value(depth + 1)?;
            if !self.eat(':') {
                return Err(self.fault("`:` is missing"));
            }
            pairs.push((key, self.value(depth + 1)?));
            if !self.eat(',') {
                return self
                    .eat('}')
                    .then_some(Literal::Dict(pairs))
                    .ok_or_else(|| self.missing('}'));
            }
        }
        Ok(Literal::Dict(pairs))
    }

    fn string(&mut self, quote: char) -> Parsed<String> {
        let mut out = String::new();
        loop {
            match self.next()? {
                c if c == quote => return Ok(out),
                '\\' => out.push(self.escape()?),
                '\n' => return Err(self.fault("a string runs over the end of its line")),
                c => out.push(c),
            }
        }
    }

    fn escape(&mut self) -> Parsed<char> {
        match self.next()? {
            c @ ('\\' | '\'' | '"') => Ok(c),
            'n' => Ok('\n'),
            'r' => Ok('\r'),
            't' => Ok('\t'),
            'x' => self.code_point(2),
            'u' => self.code_point(4),
            'U' => self.code_point(8),
            _ => Err(self.fault("unknown escape in a string")),
        }
    }

    fn code_point(&mut self, digits: u32) -> Parsed<char> {
        let mut code = 0u32;
        for _ in 0..digits {
            let digit =
                self.next()?.to_digit(16).ok_or_else(|| self.fault("a hex digit is missing"))?;
            code = code.wrapping_mul(16) | digit;
        }
        char::from_u32(code).ok_or_else(|| self.fault("no such character"))
    }

    /// A number or name that starts with `first`, which was just read. `10L`, as Python 2 wrote
    /// it, is 10; `u'…'` and `b'…'` are strings.
    fn word(&mut self, first: char) -> Parsed<Literal> {
        if let (quote @ ('\'' | '"'), 'u' | 'b') = (self.peek().unwrap_or(' '), first) {
            self.at += 1;
            return self.string(quote).map(Literal::Text);
        }
        let start = self.at - first.len_utf8();
        let rest = &self.text[self.at..];
        let letters = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        self.at += letters;
        match &self.text[start..self.at] {
            "True" => Ok(Literal::Boolean(true)),
            "False" => Ok(Literal::Boolean(false)),
            "None" => Ok(Literal::Nothing),
            word => {
                let digits = word.strip_suffix('L').unwrap_or(word);
                digits.parse().map(Literal::Integer).map_err(|_| self.fault("not a value"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_parse() {
        let parsed =
            Literal::parse(" {'descr': '<f4', 'shape': (3, 4L,), 'f': False, } \n").unwrap();
        assert_eq!(parsed.get("descr").unwrap().text(), Some("<f4"));
        let sizes: Vec<_> =
            parsed.get("shape").unwrap().items().unwrap().iter().map(Literal::size).collect();
        assert_eq!(sizes, [Some(3), Some(4)]);
        assert_eq!(parsed.get("f"), Some(&Literal::Boolean(false)));
        let twice = Literal::parse("{'a': 1, 'b': 2, 'a': 3}").unwrap();
        assert_eq!(twice.get("a"), Some(&Literal::Integer(3)), "as Python has it");
        assert_eq!(Literal::parse("(5)"), Ok(Literal::Integer(5)));
        assert_eq!(Literal::parse("(5,)"), Ok(Literal::Tuple(vec![Literal::Integer(5)])));
        assert_eq!(Literal::parse("()"), Ok(Literal::Tuple(vec![])));
        assert_eq!(Literal::parse("-1").unwrap().size(), None);
    }

    #[test]
    fn strings_round_trip() {
        for text in ["", "a b", "it's", "a\\b\n\r\t\u{1}", "naïve ☃"] {
            assert_eq!(Literal::parse(&quoted(text)), Ok(Literal::Text(text.into())));
        }
        assert_eq!(Literal::parse(r#""\x41\u00e9""#), Ok(Literal::Text("Aé".into())));
    }

    #[test]
    fn garbage_is_refused() {
        let deep = "[".repeat(100_000);
        for text in ["", "[", "(1 2)", "{1}", "{1:2", "'a", "'\\q'", "1.5", "[1,,2]", "[,]", &deep]
        {
            assert!(Literal::parse(text).is_err(), "{text:.20}");
        }
        let closed = format!("{}{}", "(".repeat(30), ")".repeat(30));
        assert!(Literal::parse(&closed).is_ok());
    }
}
