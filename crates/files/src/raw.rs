//! Files that hold an array's bytes and nothing else.

use crate::{FileHeader, FilesError, array_bytes};
use model::{FieldSpace, IndexSpace, Layout};

/// The array that fills a file of `file_bytes` from `data_offset` on.
///
/// # Errors
/// [`FilesError::Length`] where it fills more or less than the file; [`FilesError::Model`] where
/// its size passes 63 bits.
pub fn read(
    (space, fields): (&IndexSpace, &FieldSpace),
    layout: &Layout,
    data_offset: u64,
    file_bytes: u64,
) -> Result<FileHeader, FilesError> {
    let header = describe((space, fields), layout, data_offset)?;
    let needed_bytes = data_offset.saturating_add(header.data_bytes);
    if needed_bytes != file_bytes {
        return Err(FilesError::Length { needed_bytes, file_bytes });
    }
    Ok(header)
}

/// The array of a new file: it has no header, so the data starts at `data_offset`.
///
/// # Errors
/// [`FilesError::Model`] where the array's size passes 63 bits.
pub fn describe(
    (space, fields): (&IndexSpace, &FieldSpace),
    layout: &Layout,
    data_offset: u64,
) -> Result<FileHeader, FilesError> {
    Ok(FileHeader {
        space: space.clone(),
        fields: fields.clone(),
        layout: layout.clone(),
        data_offset,
        data_bytes: array_bytes(space, fields, layout)?,
    })
}
