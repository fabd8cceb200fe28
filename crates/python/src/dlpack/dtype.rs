//! Element types, as DLPack numbers and as NumPy calls them.

use super::raw::{self, DataType};
use crate::dtype;
use model::FieldSpace;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;

/// Types that have a name of their own.
const NAMED: [(u8, u8, &str); 6] = [
    (raw::BFLOAT, 16, "bfloat16"),
    (raw::FLOAT8_E4M3FN, 8, "float8_e4m3fn"),
    (raw::FLOAT8_E4M3FNUZ, 8, "float8_e4m3fnuz"),
    (raw::FLOAT8_E5M2, 8, "float8_e5m2"),
    (raw::FLOAT8_E5M2FNUZ, 8, "float8_e5m2fnuz"),
    (raw::FLOAT8_E8M0FNU, 8, "float8_e8m0fnu"),
];

/// Types that have a letter, and a number of bytes.
const LETTERS: [(u8, char); 5] =
    [(raw::INT, 'i'), (raw::UINT, 'u'), (raw::FLOAT, 'f'), (raw::COMPLEX, 'c'), (raw::BOOL, 'b')];

/// The field that an element of this type is.
///
/// # Errors
/// `TypeError` for what is no whole number of bytes, several to an element, or not known.
pub(super) fn fields(given: DataType) -> PyResult<FieldSpace> {
    let DataType { code, bits, lanes } = given;
    let unknown = || {
        let what = format!("elements of DLPack's type {code} with {bits} bits and {lanes} lanes");
        PyTypeError::new_err(format!("{what} are none that can be copied"))
    };
    if lanes != 1 || bits == 0 || bits % 8 != 0 {
        return Err(unknown());
    }
    if let Some((.., name)) = NAMED.iter().find(|named| (named.0, named.1) == (code, bits)) {
        return dtype::parse(name);
    }
    let letter = LETTERS.iter().find(|letter| letter.0 == code).ok_or_else(unknown)?.1;
    dtype::parse(format!("<{letter}{}", bits / 8)).map_err(|_| unknown())
}

/// The type that the only field of an instance is.
///
/// # Errors
/// `BufferError` for what DLPack has no number for: structures, other orders of bytes, times.
pub(super) fn number(fields: &FieldSpace) -> PyResult<DataType> {
    let unknown = || PyBufferError::new_err("DLPack has no such element type");
    let [lone] = fields.fields() else { return Err(unknown()) };
    let bits = u8::try_from(lone.bytes * 8).map_err(|_| unknown())?;
    let text = &*lone.dtype;
    if lone.bytes != fields.item_bytes() || !lone.name.is_empty() || text.starts_with('>') {
        return Err(unknown());
    }
    if let Some((code, ..)) = NAMED.iter().find(|named| named.2 == text) {
        return Ok(DataType { code: *code, bits, lanes: 1 });
    }
    let text = text.trim_start_matches(['<', '|', '=']);
    let letter = if text == "?" { Some('b') } else { text.chars().next() };
    let is_plain = text == "?" || text[1..].bytes().all(|digit| digit.is_ascii_digit());
    let found = LETTERS.iter().find(|(_, name)| Some(*name) == letter && is_plain);
    Ok(DataType { code: found.ok_or_else(unknown)?.0, bits, lanes: 1 })
}
