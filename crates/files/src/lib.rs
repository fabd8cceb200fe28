//! Headers of array files: what a `.npy`, safetensors or raw file says about the array in it, and
//! the header that a new file needs.
//!
//! **Hazard.** A header is foreign bytes: it may lie about sizes, nest without end or describe
//! what no machine holds. **Guarantee.** Every reader takes `&[u8]` and the file's length, never
//! panics, allocates in proportion to the bytes given, and accepts no array that reaches past the
//! end of the file. **Structure.** One module a format, each with `read` and `write`; [`dtype`] is
//! the part that two of them share. Nothing here opens a file.
#![forbid(unsafe_code)]

pub mod dtype;
mod error;
mod literal;
pub mod npy;
pub mod raw;
pub mod tensors;

pub use error::{FilesError, FilesErrorKind};

use model::{Component, Dim, FieldSpace, IndexSpace, Layout, ModelError};
use std::fmt;
use std::path::Path;

/// Where the data of a file that we write starts: a multiple of what any disk wants of direct
/// requests, but in [`npy::write`]'s exception.
pub const DATA_ALIGN_BYTES: u64 = 4096;

/// The formats of array files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// NumPy's, versions 1 to 3.
    Npy,
    /// Hugging Face's safetensors.
    Safetensors,
    /// The bytes of an array, and nothing else.
    Raw,
}

impl Format {
    /// The format that a path's extension names; raw where it names none of ours.
    #[must_use]
    pub fn of_path(path: &Path) -> Format {
        match path.extension().and_then(|e| e.to_str()) {
            Some("npy") => Format::Npy,
            Some("safetensors") => Format::Safetensors,
            _ => Format::Raw,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Npy => ".npy",
            Format::Safetensors => "safetensors",
            Format::Raw => "raw",
        })
    }
}

/// The array in a file.
#[derive(Debug, Clone, PartialEq)]
pub struct FileHeader {
    /// Its entries; dimensions in the order of the format's shape.
    pub space: IndexSpace,
    /// What is stored for each entry.
    pub fields: FieldSpace,
    /// How the entries lie in the file.
    pub layout: Layout,
    /// Where in the file they start.
    pub data_offset: u64,
    /// How many bytes they take.
    pub data_bytes: u64,
}

impl FileHeader {
    /// Checks that the data lies inside a file of `file_bytes`.
    fn inside(self, file_bytes: u64) -> Result<Self, FilesError> {
        let needed_bytes = self.data_offset.saturating_add(self.data_bytes);
        if needed_bytes > file_bytes {
            return Err(FilesError::Length { needed_bytes, file_bytes });
        }
        Ok(self)
    }
}

/// What an array takes in its layout, the padding of blocks and structures included.
///
/// # Errors
/// [`ModelError::TooLarge`] where that passes 63 bits.
pub fn array_bytes(
    space: &IndexSpace,
    fields: &FieldSpace,
    layout: &Layout,
) -> Result<u64, ModelError> {
    let first = layout.components().first() == Some(&Component::Fields);
    let entry = if first { fields.item_bytes() } else { fields.payload_bytes() };
    let product = (0..space.rank()).try_fold(entry, |bytes, dim| {
        let extent = space.dims()[dim].extent();
        let block = layout.blocks(dim).try_fold(1u64, |all, size| all.checked_mul(size))?;
        bytes.checked_mul(extent.div_ceil(block).checked_mul(block)?)
    });
    product.filter(|&bytes| i64::try_from(bytes).is_ok()).ok_or(ModelError::TooLarge)
}

/// An index space of `shape` from 0, with `names`, or with `d0`, `d1`, … where there are none.
fn space_of(shape: &[u64], names: Option<&[&str]>) -> Result<IndexSpace, FilesError> {
    if let Some(names) = names.filter(|names| names.len() != shape.len()) {
        return Err(FilesError::Names { names: names.len(), rank: shape.len() });
    }
    let dim = |(i, &extent): (usize, &u64)| {
        let name = names.map_or_else(|| format!("d{i}").into(), |names| names[i].into());
        let hi = i64::try_from(extent).map_err(|_| ModelError::TooLarge)?;
        Ok(Dim { name, lo: 0, hi })
    };
    let dims = shape.iter().enumerate().map(dim).collect::<Result<_, ModelError>>()?;
    Ok(IndexSpace::new(dims)?)
}

/// The extents of `space` from the slowest to the fastest of `layout`, which must keep fields
/// together and dimensions whole.
fn shape_in_order(
    format: Format,
    (space, fields): (&IndexSpace, &FieldSpace),
    layout: &Layout,
) -> Result<Vec<u64>, FilesError> {
    let lacks = |what: &str| FilesError::Inexpressible { format, what: what.to_owned() };
    let innermost = layout.components().first() == Some(&Component::Fields);
    if !innermost && (fields.fields().len() > 1 || !fields.is_packed()) {
        return Err(lacks("fields that are not innermost"));
    }
    let mut shape = Vec::with_capacity(space.rank());
    for component in layout.components().iter().rev() {
        match component {
            Component::Fields => {}
            Component::Whole(dim) => shape.push(space.dims()[usize::from(*dim)].extent()),
            Component::Inner { .. } | Component::Outer(_) => {
                return Err(lacks("dimensions in blocks"));
            }
        }
    }
    Ok(shape)
}
