//! Hugging Face's safetensors: 8 bytes of header length, a JSON object, the tensors' bytes.

use crate::{DATA_ALIGN_BYTES, FileHeader, FilesError, Format, array_bytes, shape_in_order};
use model::{Field, FieldSpace, IndexSpace, Layout};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};

/// The bytes of a file that are enough for [`head_bytes`].
pub const PREAMBLE_BYTES: usize = 8;

/// The longest header that the format allows.
pub const MAX_TEXT_BYTES: u64 = 100_000_000;

/// The key of a header that is no tensor's.
const METADATA: &str = "__metadata__";

/// How many names an error lists.
const NAMES_SHOWN: usize = 8;

/// The types of the format, with NumPy's text for each, or `ml_dtypes`' name.
const DTYPES: [(Dtype, &str, u64); 19] = [
    (Dtype::BOOL, "|b1", 1),
    (Dtype::U8, "|u1", 1),
    (Dtype::I8, "|i1", 1),
    (Dtype::F8_E5M2, "float8_e5m2", 1),
    (Dtype::F8_E4M3, "float8_e4m3fn", 1),
    (Dtype::F8_E8M0, "float8_e8m0fnu", 1),
    (Dtype::F8_E4M3FNUZ, "float8_e4m3fnuz", 1),
    (Dtype::F8_E5M2FNUZ, "float8_e5m2fnuz", 1),
    (Dtype::I16, "<i2", 2),
    (Dtype::U16, "<u2", 2),
    (Dtype::F16, "<f2", 2),
    (Dtype::BF16, "bfloat16", 2),
    (Dtype::I32, "<i4", 4),
    (Dtype::U32, "<u4", 4),
    (Dtype::F32, "<f4", 4),
    (Dtype::C64, "<c8", 8),
    (Dtype::F64, "<f8", 8),
    (Dtype::I64, "<i8", 8),
    (Dtype::U64, "<u8", 8),
];

/// How long the header of a file is, from its first bytes.
///
/// # Errors
/// [`FilesError::Header`] where there are fewer than [`PREAMBLE_BYTES`], or they announce a text
/// longer than [`MAX_TEXT_BYTES`].
pub fn head_bytes(preamble: &[u8]) -> Result<u64, FilesError> {
    let bytes = preamble.get(..PREAMBLE_BYTES).and_then(|b| b.try_into().ok());
    let text_bytes = u64::from_le_bytes(bytes.ok_or_else(|| fault("it ends within its preamble"))?);
    if text_bytes > MAX_TEXT_BYTES {
        return Err(fault(&format!("its text is {text_bytes} bytes long")));
    }
    Ok(PREAMBLE_BYTES as u64 + text_bytes)
}

/// The tensors of a file, by position in it.
///
/// # Errors
/// [`FilesError::Header`] for a broken header; [`FilesError::Length`] for a file whose length
/// differs from what it says.
pub fn names(head: &[u8], file_bytes: u64) -> Result<Vec<String>, FilesError> {
    Ok(metadata(head, file_bytes)?.1.offset_keys())
}

/// The array of tensor `name`, or of the only one, in a file that starts with `head` and is
/// `file_bytes` long. Dimensions get `dims`, or `d0`, `d1`, …
///
/// # Errors
/// As [`names`]; [`FilesError::NoTensor`] where there is none of that name, or none was named and
/// there are several; [`FilesError::Inexpressible`] for elements smaller than a byte;
/// [`FilesError::Names`]; [`FilesError::Model`] for more than 8 dimensions or none.
pub fn read(
    head: &[u8],
    file_bytes: u64,
    name: Option<&str>,
    dims: Option<&[&str]>,
) -> Result<FileHeader, FilesError> {
    let (data_at, metadata) = metadata(head, file_bytes)?;
    let info = tensor(&metadata, name)?;
    let shape: Vec<u64> = info.shape.iter().map(|&n| n as u64).collect();
    let space = crate::space_of(&shape, dims)?;
    let fields = fields_of(info.dtype)?;
    let layout = Layout::row_major(space.rank());
    let data_bytes = array_bytes(&space, &fields, &layout)?;
    let data_offset = data_at + info.data_offsets.0 as u64;
    FileHeader { space, fields, layout, data_offset, data_bytes }.inside(file_bytes)
}

/// The header of a file with the one tensor `name` in `layout`: its shape is in that order. As
/// long as a multiple of [`DATA_ALIGN_BYTES`].
///
/// # Errors
/// [`FilesError::Inexpressible`] for dimensions in blocks, more than one field, or an element type
/// or a name that the format lacks.
pub fn write(
    space: &IndexSpace,
    fields: &FieldSpace,
    layout: &Layout,
    name: &str,
) -> Result<Vec<u8>, FilesError> {
    if name == METADATA {
        return Err(lacks(format!("a tensor called `{METADATA}`")));
    }
    let dtype = dtype_of(fields)?;
    let shape = shape_in_order(Format::Safetensors, (space, fields), layout)?;
    let bytes = to_usize(array_bytes(space, fields, layout)?)?;
    let shape = shape.into_iter().map(to_usize).collect::<Result<_, _>>()?;
    let info = TensorInfo { dtype, shape, data_offsets: (0, bytes) };
    let metadata = Metadata::new(None, vec![(name.to_owned(), info)]);
    let metadata = metadata.map_err(|e| fault(&e.to_string()))?;
    let text = serde_json::to_vec(&metadata).map_err(|e| fault(&e.to_string()))?;
    Ok(framed(&text))
}

fn framed(text: &[u8]) -> Vec<u8> {
    let align = usize::try_from(DATA_ALIGN_BYTES).unwrap_or(4096);
    let total = (PREAMBLE_BYTES + text.len()).next_multiple_of(align);
    let mut out = Vec::with_capacity(total);
    out.extend_from_slice(&((total - PREAMBLE_BYTES) as u64).to_le_bytes());
    out.extend_from_slice(text);
    out.resize(total, b' ');
    out
}

/// Where the tensors' bytes start, and what lies there.
fn metadata(head: &[u8], file_bytes: u64) -> Result<(u64, Metadata), FilesError> {
    let data_at = head_bytes(head)?;
    let end = to_usize(data_at)?;
    let text = head.get(PREAMBLE_BYTES..end).ok_or_else(|| fault("it ends within its header"))?;
    if text.is_empty() {
        return Err(fault("its text is empty"));
    }
    let metadata: Metadata = serde_json::from_slice(text).map_err(|e| fault(&e.to_string()))?;
    let needed_bytes = data_at.saturating_add(metadata.data_len() as u64);
    if needed_bytes != file_bytes {
        return Err(FilesError::Length { needed_bytes, file_bytes });
    }
    Ok((data_at, metadata))
}

fn tensor<'a>(metadata: &'a Metadata, name: Option<&str>) -> Result<&'a TensorInfo, FilesError> {
    let mut names = metadata.offset_keys();
    let only = match (name, &names[..]) {
        (Some(name), _) => name,
        (None, [only]) => only,
        (None, _) => "",
    };
    if let Some(info) = metadata.info(only) {
        return Ok(info);
    }
    let name = name.unwrap_or("(none was named)").to_owned();
    names.truncate(NAMES_SHOWN);
    Err(FilesError::NoTensor { name, there: names })
}

fn fields_of(dtype: Dtype) -> Result<FieldSpace, FilesError> {
    let known = DTYPES.iter().find(|(known, ..)| *known == dtype);
    let (_, text, bytes) =
        known.ok_or_else(|| lacks(format!("elements of type {dtype} as whole bytes")))?;
    let field = Field { name: "".into(), bytes: *bytes, offset: 0, dtype: (*text).into() };
    Ok(FieldSpace::new(vec![field], *bytes)?)
}

fn dtype_of(fields: &FieldSpace) -> Result<Dtype, FilesError> {
    let [field] = fields.fields() else {
        return Err(lacks("more than one field"));
    };
    if !fields.is_packed() {
        return Err(lacks("padded structures"));
    }
    // Opaque bytes are what they are: the format's own name for them is U8.
    let text = if field.dtype.is_empty() && field.bytes == 1 { "|u1" } else { &field.dtype };
    let known = DTYPES.iter().find(|(_, known, _)| *known == text);
    known.map(|(dtype, ..)| *dtype).ok_or_else(|| lacks(format!("elements of type `{text}`")))
}

fn to_usize(bytes: u64) -> Result<usize, FilesError> {
    usize::try_from(bytes).map_err(|_| FilesError::Model(model::ModelError::TooLarge))
}

fn lacks(what: impl Into<String>) -> FilesError {
    FilesError::Inexpressible { format: Format::Safetensors, what: what.into() }
}

fn fault(why: &str) -> FilesError {
    FilesError::Header { format: Format::Safetensors, why: why.to_owned() }
}
