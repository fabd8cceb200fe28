//! Numbers within bounds, as arguments.

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::ops::RangeInclusive;
use std::time::Duration;

/// The integer that `given` is, for the argument called `name`.
///
/// # Errors
/// `TypeError` for what is no integer, `ValueError` for one outside of `range`.
pub(crate) fn integer<N: TryFrom<i64>>(
    name: &str,
    given: &Bound<'_, PyAny>,
    range: RangeInclusive<i64>,
) -> PyResult<N> {
    let outside = || {
        let (least, most) = (range.start(), range.end());
        PyValueError::new_err(format!("{name} must be from {least} to {most}, not {given}"))
    };
    let number = match given.extract::<i64>() {
        Ok(number) => number,
        Err(error) if error.is_instance_of::<PyOverflowError>(given.py()) => return Err(outside()),
        Err(_) => {
            let what = given.get_type();
            return Err(PyTypeError::new_err(format!("{name} must be an integer, not {what}")));
        }
    };
    if !range.contains(&number) {
        return Err(outside());
    }
    N::try_from(number).map_err(|_| outside())
}

/// The time span of `seconds`, for the argument called `name`; one longer than any clock counts
/// is the longest.
///
/// # Errors
/// `ValueError` for one that is negative or not a number.
pub(crate) fn seconds(name: &str, seconds: f64) -> PyResult<Duration> {
    if seconds.is_nan() || seconds < 0.0 {
        let what = format!("{name} must be 0 seconds or more, not {seconds:e}");
        return Err(PyValueError::new_err(what));
    }
    Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}
