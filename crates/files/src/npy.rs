//! NumPy's `.npy`: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.

use crate::literal::Literal;
use crate::{DATA_ALIGN_BYTES, FileHeader, FilesError, Format, array_bytes, dtype, shape_in_order};
use model::{Component, FieldSpace, IndexSpace, Layout};

/// What every file starts with.
const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// The bytes of a file that are enough for [`head_bytes`].
pub const PREAMBLE_BYTES: usize = 12;

/// The longest header text that is read; NumPy itself trusts far less.
pub const MAX_TEXT_BYTES: u64 = 1 << 20;

/// The longest header text that NumPy reads unless it is told to.
const NUMPY_TEXT_BYTES: usize = 10_000;
/// What NumPy aligns the data of its own files to.
const NUMPY_ALIGN_BYTES: usize = 64;

/// How long the header of a file is, from its first bytes.
///
/// # Errors
/// [`FilesError::Header`] where they are no `.npy`, of an unknown version, or announce a text
/// longer than [`MAX_TEXT_BYTES`].
pub fn head_bytes(preamble: &[u8]) -> Result<u64, FilesError> {
    let (text_at, text_bytes) = preamble_of(preamble)?;
    Ok(text_at as u64 + text_bytes)
}

/// The array of a file that starts with `head` and is `file_bytes` long. Dimensions get `names`,
/// or `d0`, `d1`, …
///
/// # Errors
/// [`FilesError::Header`] for a broken header, and for an element type that can't be moved;
/// [`FilesError::Names`], [`FilesError::Model`] for an array of more than 8 dimensions or none,
/// [`FilesError::Length`] for a file that is too short.
pub fn read(
    head: &[u8],
    file_bytes: u64,
    names: Option<&[&str]>,
) -> Result<FileHeader, FilesError> {
    let (text_at, text_bytes) = preamble_of(head)?;
    let data_offset = text_at as u64 + text_bytes;
    let end = usize::try_from(data_offset).map_err(|_| fault("the header is too long"))?;
    let text = head.get(text_at..end).ok_or_else(|| fault("it ends within its header"))?;
    let text = decode(text, head[MAGIC.len()])?;
    let literal = Literal::parse(&text).map_err(|why| fault(&why))?;
    let part = |key: &str| literal.get(key).ok_or_else(|| fault(&format!("`{key}` is missing")));
    let fields = dtype::of_literal(part("descr")?).map_err(|error| match error {
        // It is the file that says so, and no argument.
        FilesError::Dtype { .. } => fault(&error.to_string()),
        other => other,
    })?;
    let shape = part("shape")?.items().map(|items| items.iter().map(Literal::size).collect());
    let shape: Vec<u64> = shape.flatten().ok_or_else(|| fault("`shape` is no shape"))?;
    let space = crate::space_of(&shape, names)?;
    let layout = match part("fortran_order")? {
        Literal::Boolean(false) => Layout::row_major(space.rank()),
        Literal::Boolean(true) => column_major(space.rank())?,
        _ => return Err(fault("`fortran_order` is neither True nor False")),
    };
    let data_bytes = array_bytes(&space, &fields, &layout)?;
    FileHeader { space, fields, layout, data_offset, data_bytes }.inside(file_bytes)
}

/// The header of a file for an array in `layout`: its shape is in that order, slowest first. As
/// long as a multiple of [`DATA_ALIGN_BYTES`], or of 64 where NumPy would read no more than that.
///
/// # Errors
/// [`FilesError::Inexpressible`] for dimensions in blocks, fields that are not innermost, or
/// fields without names.
pub fn write(
    space: &IndexSpace,
    fields: &FieldSpace,
    layout: &Layout,
) -> Result<Vec<u8>, FilesError> {
    let shape = shape_in_order(Format::Npy, (space, fields), layout)?;
    array_bytes(space, fields, layout)?;
    let shape: String = shape.iter().map(|n| format!("{n}, ")).collect();
    let descr = dtype::describe(fields)?;
    let text = format!(
        "{{'descr': {descr}, 'fortran_order': False, 'shape': ({}), }}",
        if space.rank() == 1 { shape.trim_end() } else { shape.trim_end_matches(", ") }
    );
    Ok(framed(&text))
}

/// The preamble, `text`, spaces up to the alignment, and a line end.
fn framed(text: &str) -> Vec<u8> {
    let direct = usize::try_from(DATA_ALIGN_BYTES).unwrap_or(4096);
    let padded = |text_at: usize, align| (text_at + text.len() + 1).next_multiple_of(align);
    let version = match (text.is_ascii(), padded(10, direct) - 10 <= usize::from(u16::MAX)) {
        (true, true) => 1,
        (true, false) => 2,
        (false, _) => 3,
    };
    let text_at = if version == 1 { 10 } else { 12 };
    let lengths = [direct, NUMPY_ALIGN_BYTES].map(|align| padded(text_at, align));
    let read = lengths.into_iter().find(|total| total - text_at <= NUMPY_TEXT_BYTES);
    let total = read.unwrap_or(lengths[0]);
    let text_bytes = u32::try_from(total - text_at).unwrap_or(u32::MAX);
    let mut out = Vec::with_capacity(total);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&[version, 0]);
    out.extend_from_slice(&text_bytes.to_le_bytes()[..text_at - 8]);
    out.extend_from_slice(text.as_bytes());
    out.resize(total - 1, b' ');
    out.push(b'\n');
    out
}

/// Where the text starts, and how long it is.
fn preamble_of(head: &[u8]) -> Result<(usize, u64), FilesError> {
    if !head.starts_with(MAGIC) {
        return Err(fault("the first bytes are not `\\x93NUMPY`"));
    }
    let short = || fault("it ends within its preamble");
    let (text_at, text_bytes) = match head.get(6..8).ok_or_else(short)? {
        [1, 0] => (10, u64::from(u16::from_le_bytes(bytes_at(head, 8).ok_or_else(short)?))),
        [2 | 3, 0] => (12, u64::from(u32::from_le_bytes(bytes_at(head, 8).ok_or_else(short)?))),
        [major, minor] => return Err(fault(&format!("unknown version {major}.{minor}"))),
        _ => return Err(short()),
    };
    if text_bytes > MAX_TEXT_BYTES {
        return Err(fault(&format!("its text is {text_bytes} bytes long")));
    }
    Ok((text_at, text_bytes))
}

fn bytes_at<const N: usize>(head: &[u8], at: usize) -> Option<[u8; N]> {
    head.get(at..at + N)?.try_into().ok()
}

/// UTF-8 in version 3, Latin-1 before.
fn decode(text: &[u8], version: u8) -> Result<String, FilesError> {
    if version < 3 {
        return Ok(text.iter().copied().map(char::from).collect());
    }
    let text = std::str::from_utf8(text).map_err(|e| fault(&e.to_string()))?;
    Ok(text.to_owned())
}

fn column_major(rank: usize) -> Result<Layout, FilesError> {
    let dims = (0..rank).filter_map(|d| u8::try_from(d).ok()).map(Component::Whole);
    Ok(Layout::new(std::iter::once(Component::Fields).chain(dims), rank)?)
}

fn fault(why: &str) -> FilesError {
    FilesError::Header { format: Format::Npy, why: why.to_owned() }
}
