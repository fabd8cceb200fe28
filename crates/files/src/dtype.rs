//! NumPy's element types as field spaces, and back.
//!
//! A type is text in the form of NumPy's `descr`: `<f4`; `('<f4', (2, 3))` for a subarray; a list
//! `[('a', '<i4'), ('', '|V4'), ('b', '<f8', (3,))]` for a structure, where entries without a name
//! are padding; or a dict with `names`, `formats`, `offsets` and `itemsize`. [`Field::dtype`]
//! holds such a text, plain types without quotes.

use crate::literal::{Literal, quoted};
use crate::{FilesError, Format};
use model::{Field, FieldSpace};

/// The most fields of one structure.
pub const MAX_FIELDS: usize = 4096;

/// Types of tensors that NumPy itself lacks, by the name that `ml_dtypes` gives them.
const FOREIGN: [(&str, u64); 6] = [
    ("bfloat16", 2),
    ("float8_e4m3fn", 1),
    ("float8_e4m3fnuz", 1),
    ("float8_e5m2", 1),
    ("float8_e5m2fnuz", 1),
    ("float8_e8m0fnu", 1),
];

/// The field space that `text` describes: `<f4`, `f4`, `[('a', '<i4'), …]`, `{'names': …}`.
///
/// # Errors
/// [`FilesError::Dtype`] for text that is no type, for Python objects, and for types of variable
/// or zero size; [`FilesError::Model`] for fields that overlap or share a name.
pub fn parse(text: &str) -> Result<FieldSpace, FilesError> {
    let text = text.trim();
    if text.starts_with(['[', '(', '{', '\'', '"']) {
        let literal = Literal::parse(text).map_err(|why| fault(text, &why))?;
        return of_literal(&literal);
    }
    of_literal(&Literal::Text(text.to_owned()))
}

/// The field space of a parsed `descr`.
pub(crate) fn of_literal(descr: &Literal) -> Result<FieldSpace, FilesError> {
    if let Literal::List(entries) = descr {
        return of_list(entries);
    }
    if let Literal::Dict(_) = descr {
        return of_dict(descr);
    }
    let lone = Kind::of(descr)?;
    let field = lone.field("", 0)?;
    let bytes = field.bytes;
    Ok(FieldSpace::new(vec![field], bytes)?)
}

/// The `descr` of `fields`: as text that [`parse`] and NumPy's `descr_to_dtype` read.
///
/// # Errors
/// [`FilesError::Inexpressible`] where there are no names to tell several fields apart.
pub fn describe(fields: &FieldSpace) -> Result<String, FilesError> {
    if let [lone] = fields.fields()
        && lone.name.is_empty()
        && lone.bytes == fields.item_bytes()
    {
        return Ok(element(lone));
    }
    let mut sorted: Vec<&Field> = fields.fields().iter().collect();
    sorted.sort_by_key(|f| f.offset);
    let mut entries = Vec::with_capacity(sorted.len());
    let mut end = 0;
    for field in sorted {
        if field.name.is_empty() {
            let what = "a structure with a field that has no name".to_owned();
            return Err(FilesError::Inexpressible { format: Format::Npy, what });
        }
        entries.extend(padding(end, field.offset));
        entries.push(format!("({}, {})", quoted(&field.name), element_and_shape(field)));
        end = field.offset + field.bytes;
    }
    entries.extend(padding(end, fields.item_bytes()));
    Ok(format!("[{}]", entries.join(", ")))
}

fn padding(from: u64, to: u64) -> Option<String> {
    (to > from).then(|| format!("('', '|V{}')", to - from))
}

/// A field's type as a Python literal.
fn element(field: &Field) -> String {
    match &*field.dtype {
        "" => format!("'|V{}'", field.bytes),
        text if text.starts_with(['[', '(', '{']) => text.to_owned(),
        text if foreign_bytes(text).is_some() => format!("'<V{}'", field.bytes),
        text => quoted(text),
    }
}

/// Within a list entry a subarray's shape stands beside its type, not in a tuple with it.
fn element_and_shape(field: &Field) -> String {
    match Literal::parse(&field.dtype) {
        Ok(Literal::Tuple(_)) => field.dtype[1..field.dtype.len() - 1].to_owned(),
        _ => element(field),
    }
}

/// One type: its text, its size, and for a structure nothing more.
struct Kind {
    text: String,
    bytes: u64,
}

impl Kind {
    fn of(descr: &Literal) -> Result<Kind, FilesError> {
        match descr {
            Literal::Text(text) => Ok(Kind { bytes: plain_bytes(text)?, text: normal(text) }),
            Literal::List(_) | Literal::Dict(_) => {
                let nested = of_literal(descr)?;
                Ok(Kind { bytes: nested.item_bytes(), text: describe(&nested)? })
            }
            Literal::Tuple(items) => match &items[..] {
                [base, shape] => Kind::of(base)?.repeated(shape),
                _ => Err(fault("(…)", "a subarray is a pair of a type and a shape")),
            },
            _ => Err(fault("descr", "neither text nor a list of fields")),
        }
    }

    /// A subarray of this type.
    fn repeated(self, shape: &Literal) -> Result<Kind, FilesError> {
        let extents = sizes(shape).ok_or_else(|| fault(&self.text, "its shape is no shape"))?;
        let bytes = extents.iter().try_fold(self.bytes, |all, &n| all.checked_mul(n));
        let bytes = bytes.ok_or_else(|| fault(&self.text, "its size passes 64 bits"))?;
        if extents.is_empty() {
            return Ok(self);
        }
        let base = match self.text.starts_with(['[', '(']) {
            true => self.text,
            false => quoted(&self.text),
        };
        let shape: String = extents.iter().map(|n| format!("{n},")).collect();
        Ok(Kind { text: format!("({base}, ({shape}))"), bytes })
    }

    fn field(self, name: &str, offset: u64) -> Result<Field, FilesError> {
        if self.bytes == 0 {
            return Err(fault(&self.text, "it has size 0"));
        }
        Ok(Field { name: name.into(), bytes: self.bytes, offset, dtype: self.text.into() })
    }
}

fn sizes(shape: &Literal) -> Option<Vec<u64>> {
    match shape.items() {
        Some(items) => items.iter().map(Literal::size).collect(),
        None => Some(vec![shape.size()?]),
    }
}

fn of_list(entries: &[Literal]) -> Result<FieldSpace, FilesError> {
    let mut fields = Vec::new();
    let mut offset = 0u64;
    for entry in entries {
        let (name, kind) = of_entry(entry)?;
        let bytes = kind.bytes;
        let is_padding = name.is_empty() && kind.text.starts_with("|V");
        if !is_padding {
            fields.push(kind.field(&name, offset)?);
        }
        offset =
            offset.checked_add(bytes).ok_or_else(|| fault("[…]", "its size passes 64 bits"))?;
    }
    structure(fields, offset)
}

/// An entry `(name, type)`, `(name, type, shape)` or, with a title, `((title, name), type)`.
fn of_entry(entry: &Literal) -> Result<(String, Kind), FilesError> {
    let wrong = || fault("[…]", "a field is a tuple of a name, a type and maybe a shape");
    let (name, kind) = match entry.items().ok_or_else(wrong)? {
        [name, base] => (name, Kind::of(base)?),
        [name, base, shape] => (name, Kind::of(base)?.repeated(shape)?),
        _ => return Err(wrong()),
    };
    let name = match name.items() {
        Some([_title, name]) => name.text(),
        _ => name.text(),
    };
    Ok((name.ok_or_else(wrong)?.to_owned(), kind))
}

fn of_dict(descr: &Literal) -> Result<FieldSpace, FilesError> {
    let list = |key| descr.get(key).and_then(Literal::items);
    let (Some(names), Some(formats)) = (list("names"), list("formats")) else {
        return Err(fault("{…}", "`names` or `formats` is missing"));
    };
    let offsets = list("offsets");
    if names.len() != formats.len() || offsets.is_some_and(|o| o.len() != names.len()) {
        return Err(fault("{…}", "`names`, `formats` and `offsets` differ in length"));
    }
    let (mut fields, mut end) = (Vec::new(), 0u64);
    for (i, (name, format)) in names.iter().zip(formats).enumerate() {
        let name = name.text().ok_or_else(|| fault("{…}", "a name is no text"))?;
        let offset = match offsets {
            Some(offsets) => {
                offsets[i].size().ok_or_else(|| fault("{…}", "an offset is no size"))?
            }
            None => end,
        };
        let field = Kind::of(format)?.field(name, offset)?;
        let field_end = offset.checked_add(field.bytes);
        end = end.max(field_end.ok_or_else(|| fault("{…}", "its size passes 64 bits"))?);
        fields.push(field);
    }
    let item = descr.get("itemsize").map_or(Some(end), Literal::size);
    structure(fields, item.ok_or_else(|| fault("{…}", "`itemsize` is no size"))?)
}

fn structure(fields: Vec<Field>, item_bytes: u64) -> Result<FieldSpace, FilesError> {
    if fields.len() > MAX_FIELDS {
        return Err(fault("[…]", &format!("it has more than {MAX_FIELDS} fields")));
    }
    Ok(FieldSpace::new(fields, item_bytes)?)
}

/// The size of a plain type such as `<f4`, `|S7`, `<U3`, `<M8[ns]`.
fn plain_bytes(text: &str) -> Result<u64, FilesError> {
    if let Some(bytes) = foreign_bytes(text) {
        return Ok(bytes);
    }
    let bare = text.strip_prefix(['<', '>', '|', '=']).unwrap_or(text);
    let mut chars = bare.chars();
    let (code, rest) = (chars.next().unwrap_or(' '), chars.as_str());
    let digits = match (code, rest.split_once('[')) {
        ('m' | 'M', Some((digits, unit))) if unit.ends_with(']') => digits,
        _ => rest,
    };
    let size = digits.parse::<u64>().ok().filter(|_| digits.bytes().all(|b| b.is_ascii_digit()));
    match (code, size) {
        ('?', None) if rest.is_empty() => Ok(1),
        ('O', _) => Err(fault(text, "Python objects can't be moved as bytes")),
        ('b', Some(1)) | ('m' | 'M', Some(8)) | ('i' | 'u', Some(1 | 2 | 4 | 8)) => {
            Ok(size.unwrap_or(1))
        }
        ('f', Some(bytes @ (2 | 4 | 8 | 12 | 16))) => Ok(bytes),
        ('c', Some(bytes @ (8 | 16 | 24 | 32))) => Ok(bytes),
        ('S' | 'a' | 'V', Some(bytes)) => Ok(bytes),
        ('U', Some(chars)) => chars.checked_mul(4).ok_or_else(|| fault(text, "it is too large")),
        _ => Err(fault(text, "unknown type code or size")),
    }
}

/// The text with its byte order spelled out, `|` where there is none: one text for each type.
fn normal(text: &str) -> String {
    let bare = text.trim_start_matches(['<', '>', '|', '=']);
    match bare.chars().next() {
        _ if foreign_bytes(text).is_some() => text.to_owned(),
        Some('?') => "|b1".to_owned(),
        Some('S' | 'a') => format!("|{bare}"),
        _ if matches!(bare, "b1" | "i1" | "u1") => format!("|{bare}"),
        _ if text.starts_with(['<', '>']) => text.to_owned(),
        Some('V') => format!("|{bare}"),
        _ if cfg!(target_endian = "big") => format!(">{bare}"),
        _ => format!("<{bare}"),
    }
}

fn foreign_bytes(text: &str) -> Option<u64> {
    FOREIGN.iter().find(|(name, _)| *name == text).map(|(_, bytes)| *bytes)
}

fn fault(text: &str, why: &str) -> FilesError {
    FilesError::Dtype { text: text.chars().take(64).collect(), why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets(fields: &FieldSpace) -> Vec<(&str, u64, u64)> {
        fields.fields().iter().map(|f| (&*f.name, f.offset, f.bytes)).collect()
    }

    #[test]
    fn plain_types_have_sizes() {
        let cases = [("<f4", 4), ("|u1", 1), (">i8", 8), ("<c16", 16), ("|S7", 7), ("<U3", 12)];
        let more = [("<M8[ns]", 8), ("|b1", 1), ("?", 1), ("f2", 2), ("|V5", 5), ("bfloat16", 2)];
        for (text, bytes) in cases.into_iter().chain(more) {
            let fields = parse(text).unwrap();
            assert_eq!((fields.item_bytes(), fields.fields().len()), (bytes, 1), "{text}");
            assert_eq!(&*fields.fields()[0].name, "");
        }
        assert_eq!(&*parse("f4").unwrap().fields()[0].dtype, "<f4");
        assert_eq!(&*parse("u1").unwrap().fields()[0].dtype, "|u1");
        // What has no byte order is one type, whichever is written.
        for (text, one) in [("<u1", "|u1"), (">b1", "|b1"), ("=i1", "|i1"), ("<S3", "|S3")] {
            assert_eq!(&*parse(text).unwrap().fields()[0].dtype, one, "{text}");
        }
        assert_eq!(parse("|f4").unwrap(), parse("=f4").unwrap());
    }

    #[test]
    fn wrong_types_are_refused() {
        for text in [
            "",
            "<",
            "<f",
            "<f3",
            "|O",
            "<i-4",
            "<i+4",
            "x4",
            "<f4x",
            "S0",
            "V99999999999999999999",
            "<U9999999999999999999",
        ] {
            assert!(matches!(parse(text), Err(FilesError::Dtype { .. })), "{text}");
        }
        for text in
            ["[]", "[('a',)]", "[('a', '<f4'), ('a', '<f4')]", "('<f4', (-1,))", "{'names': ['a']}"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn aligned_structures_keep_their_padding() {
        let text = "[('a', '|u1'), ('', '|V3'), ('b', '<f4', (2, 3)), ('c', '|u1'), ('', '|V3')]";
        let fields = parse(text).unwrap();
        assert_eq!(offsets(&fields), [("a", 0, 1), ("b", 4, 24), ("c", 28, 1)]);
        assert_eq!(fields.item_bytes(), 32);
        let again = parse(&describe(&fields).unwrap()).unwrap();
        assert_eq!(again, fields);
    }

    #[test]
    fn dicts_place_fields_anywhere() {
        let text =
            "{'names': ['a', 'b'], 'formats': ['<i4', 'u1'], 'offsets': [4, 0], 'itemsize': 12}";
        let fields = parse(text).unwrap();
        assert_eq!(offsets(&fields), [("a", 4, 4), ("b", 0, 1)]);
        assert_eq!(fields.item_bytes(), 12);
        let list = "[('b', '|u1'), ('', '|V3'), ('a', '<i4'), ('', '|V4')]";
        assert_eq!(describe(&fields).unwrap(), list);
        let overlap = "{'names': ['a', 'b'], 'formats': ['<i4', 'u1'], 'offsets': [0, 2]}";
        assert!(matches!(parse(overlap), Err(FilesError::Model(_))));
    }

    #[test]
    fn nested_structures_are_one_field() {
        let text = "[('p', [('x', '<f4'), ('y', '<f4')], (2,)), (('title', 'q'), '>i2')]";
        let fields = parse(text).unwrap();
        assert_eq!(offsets(&fields), [("p", 0, 16), ("q", 16, 2)]);
        assert_eq!(&*fields.fields()[0].dtype, "([('x', '<f4'), ('y', '<f4')], (2,))");
        assert_eq!(parse(&describe(&fields).unwrap()).unwrap(), fields);
    }

    #[test]
    fn a_lone_subarray_round_trips() {
        let fields = parse("('<f4', (2, 3))").unwrap();
        assert_eq!(offsets(&fields), [("", 0, 24)]);
        assert_eq!(parse(&describe(&fields).unwrap()).unwrap(), fields);
    }
}
