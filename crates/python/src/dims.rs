//! Index spaces and boxes as Python writes them.

use crate::errors;
use crate::numbers::integer;
use model::{Dim, IndexSpace};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyMapping, PyString, PyTuple};
use std::ops::Range;

/// Names, or names with their indices, slowest first.
pub(crate) enum Dims {
    /// `"nhwc"` or `"batch,row"`.
    Names(Vec<String>),
    /// `{"n": 32, "h": (8, 24)}`.
    Bounds(Vec<(String, Range<i64>)>),
}

impl<'py> FromPyObject<'_, 'py> for Dims {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(names) = object.cast::<PyString>() {
            return Ok(Dims::Names(isometry::layout::dim_names(names.to_str()?)));
        }
        bounds(&object).map(Dims::Bounds)
    }
}

impl Dims {
    /// The index space of an array of `shape`.
    ///
    /// # Errors
    /// `ValueError` where names or extents don't fit `shape`.
    pub(crate) fn of_shape(self, shape: &[u64]) -> PyResult<IndexSpace> {
        let (names, ranges): (Vec<_>, Option<Vec<_>>) = match self {
            Dims::Names(names) => (names, None),
            Dims::Bounds(bounds) => {
                let (names, ranges) = bounds.into_iter().unzip();
                (names, Some(ranges))
            }
        };
        if names.len() != shape.len() {
            let what = format!("{} dims for an array of {} dimensions", names.len(), shape.len());
            return Err(PyValueError::new_err(what));
        }
        let ranges = ranges.unwrap_or_else(|| shape.iter().map(|&n| 0..n as i64).collect());
        let wrong = ranges.iter().zip(shape).find(|(r, n)| extent(r) != **n);
        if let Some((range, extent)) = wrong {
            let what = format!("the indices {range:?} for a dimension of {extent}");
            return Err(PyValueError::new_err(what));
        }
        space(names.into_iter().zip(ranges))
    }

    /// `d0`, `d1`, …: of an array whose dimensions have no names.
    pub(crate) fn numbered(rank: usize) -> Self {
        Dims::Names((0..rank).map(|i| format!("d{i}")).collect())
    }

    /// The names alone.
    ///
    /// # Errors
    /// `TypeError` where there are extents too: the file knows its own.
    pub(crate) fn into_names(self) -> PyResult<Vec<String>> {
        match self {
            Dims::Names(names) => Ok(names),
            Dims::Bounds(_) => {
                Err(PyTypeError::new_err("dims with extents are for raw files, with a dtype"))
            }
        }
    }

    /// The index space of a new array.
    ///
    /// # Errors
    /// `TypeError` for names without extents.
    pub(crate) fn into_space(self) -> PyResult<IndexSpace> {
        match self {
            Dims::Bounds(bounds) => space(bounds.into_iter()),
            Dims::Names(_) => {
                Err(PyTypeError::new_err("dims of a new array are a mapping from name to extent"))
            }
        }
    }
}

/// Ranges by name, half-open: what a box is.
pub(crate) fn bounds(object: &Bound<'_, PyAny>) -> PyResult<Vec<(String, Range<i64>)>> {
    let wrong =
        || PyTypeError::new_err("dims are a mapping from name to an extent or a pair (lo, hi)");
    let mapping = object.cast::<PyMapping>().map_err(|_| wrong())?;
    let mut bounds = Vec::new();
    for item in mapping.items()?.iter() {
        let (name, indices): (String, Bound<'_, PyAny>) = item.extract()?;
        let index = |given: &Bound<'_, PyAny>| integer(&name, given, i64::MIN..=i64::MAX);
        let range = if indices.is_instance_of::<PyTuple>() {
            let (lo, hi): (Bound<'_, PyAny>, Bound<'_, PyAny>) =
                indices.extract().map_err(|_| wrong())?;
            index(&lo)?..index(&hi)?
        } else {
            0..index(&indices)?
        };
        bounds.push((name, range));
    }
    Ok(bounds)
}

fn extent(range: &Range<i64>) -> u64 {
    u64::try_from(range.end.saturating_sub(range.start)).unwrap_or(u64::MAX)
}

fn space(dims: impl Iterator<Item = (String, Range<i64>)>) -> PyResult<IndexSpace> {
    let dim = |(name, range): (String, Range<i64>)| Dim {
        name: name.into(),
        lo: range.start,
        hi: range.end,
    };
    IndexSpace::new(dims.map(dim).collect()).map_err(|e| errors::layout(&e))
}
