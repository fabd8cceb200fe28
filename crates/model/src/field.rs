//! Field spaces: what is stored for each entry (paper, section 2).

use crate::ModelError;
use std::sync::Arc;

/// One named field.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Field {
    /// Unique within its field space; empty for the lone field of an unstructured type.
    pub name: Arc<str>,
    /// The size of one value; at least 1.
    pub bytes: u64,
    /// The offset within the structure, used where `F` comes first in a layout.
    pub offset: u64,
    /// The type as NumPy writes it (`<f4`), or empty for opaque bytes. Carried, never converted.
    pub dtype: Arc<str>,
}

/// The fields of an entry, packed or padded as a structure. No two fields overlap.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FieldSpace {
    fields: Vec<Field>,
    item_bytes: u64,
}

impl FieldSpace {
    /// A structure of `fields` that takes `item_bytes` in all, padding included.
    ///
    /// # Errors
    /// [`ModelError::Fields`] for no field, a field of size 0, a repeated name, two fields that
    /// overlap, or a field that reaches past `item_bytes`.
    pub fn new(fields: Vec<Field>, item_bytes: u64) -> Result<Self, ModelError> {
        let wrong = |why: &str| Err(ModelError::Fields { why: why.to_owned() });
        if fields.is_empty() {
            return wrong("a field space needs a field");
        }
        for (i, field) in fields.iter().enumerate() {
            if field.bytes == 0 {
                return wrong("a field has size 0");
            }
            if field.offset.checked_add(field.bytes).is_none_or(|end| end > item_bytes) {
                return wrong("a field reaches past the end of its structure");
            }
            if fields[..i].iter().any(|f| f.name == field.name) {
                return wrong("two fields have one name");
            }
        }
        let mut spans: Vec<_> = fields.iter().map(|f| (f.offset, f.offset + f.bytes)).collect();
        spans.sort_unstable();
        if spans.windows(2).any(|pair| pair[0].1 > pair[1].0) {
            return wrong("two fields overlap");
        }
        Ok(FieldSpace { fields, item_bytes })
    }

    /// Fields of these sizes, packed, named `f0`, `f1`, …; a lone one has no name.
    ///
    /// # Errors
    /// As [`FieldSpace::new`].
    pub fn packed(bytes: &[u64]) -> Result<Self, ModelError> {
        let mut offset = 0u64;
        let mut fields = Vec::with_capacity(bytes.len());
        for (i, &bytes_each) in bytes.iter().enumerate() {
            let name = if bytes.len() == 1 { String::new() } else { format!("f{i}") };
            fields.push(Field { name: name.into(), bytes: bytes_each, offset, dtype: "".into() });
            offset = offset.checked_add(bytes_each).ok_or(ModelError::TooLarge)?;
        }
        Self::new(fields, offset)
    }

    /// The fields, in declaration order.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The size of the structure, padding included.
    #[must_use]
    pub fn item_bytes(&self) -> u64 {
        self.item_bytes
    }

    /// The sum of the field sizes, without padding: `|F|` of the paper.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        self.fields.iter().map(|f| f.bytes).sum()
    }

    /// Whether offsets ascend without gaps and nothing follows the last field.
    #[must_use]
    pub fn is_packed(&self) -> bool {
        let mut end = 0;
        for field in &self.fields {
            if field.offset != end {
                return false;
            }
            end += field.bytes;
        }
        end == self.item_bytes
    }
}
