//! Tensors of others.

use super::dtype;
use super::raw::{self, Legacy, Managed, Tensor, VERSION, Versioned};
use crate::array::{Array, Known, Place, packed_strides};
use crate::errors;
use isometry::Machine;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::Arc;

/// The most dimensions of a tensor that are looked at.
const MOST_RANK: usize = 64;

/// Whether `object` exports memory of a device of CUDA's.
pub(crate) fn is_on_cuda(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    if !object.hasattr("__dlpack__")? {
        return Ok(false);
    }
    let Some(device) = object.getattr_opt("__dlpack_device__")? else { return Ok(false) };
    let (kind, _): (i32, i32) = device.call0()?.extract()?;
    Ok([raw::CUDA, raw::CUDA_MANAGED].contains(&kind))
}

/// The array that `object` exports, in memory of a device of CUDA's. It has what makes it put in front of a
/// stream of the machine's, and copies wait for that.
pub(crate) fn taken(machine: &Machine, object: &Bound<'_, PyAny>) -> PyResult<Array> {
    let (kind, id): (i32, i32) = object.call_method0("__dlpack_device__")?.extract()?;
    let py = object.py();
    let fence = py.detach(|| machine.stream_fence(id)).map_err(errors::raised)?;
    let tensor = Borrowed::take(&exported(object, fence.stream().raw())?)?;
    let found = tensor.get().tensor().device;
    if found != (raw::Device { kind, id }) {
        let what = format!("a tensor on DLPack's device {found:?}, where ({kind}, {id}) was said");
        return Err(PyValueError::new_err(what));
    }
    let mut array = tensor.get().array(Arc::new(tensor.clone().unbind()))?;
    array.after.push(py.detach(|| fence.into_event()).map_err(errors::raised)?);
    Ok(array)
}

/// The capsule of `object`, for use on `stream`; by the structure before versions where it knows none.
fn exported<'py>(object: &Bound<'py, PyAny>, stream: u64) -> PyResult<Bound<'py, PyCapsule>> {
    let py = object.py();
    let options = PyDict::new(py);
    options.set_item("stream", stream)?;
    options.set_item("max_version", (VERSION.major, VERSION.minor))?;
    let call = |options| object.call_method("__dlpack__", (), Some(options));
    let capsule = call(&options).or_else(|error| {
        if !error.is_instance_of::<PyTypeError>(py) {
            return Err(error);
        }
        options.del_item("max_version")?;
        call(&options)
    })?;
    let none = |_| PyTypeError::new_err("__dlpack__ gives no capsule");
    capsule.cast_into().map_err(|error| none(PyErr::from(error)))
}

/// A tensor that was taken out of its capsule. It is an object, so that it is given back with the
/// interpreter: who drops the last reference elsewhere leaves that to whoever has it next.
#[pyclass(frozen, module = "isometry")]
struct Borrowed(Taken);

/// A structure that is given back once.
enum Taken {
    Legacy(NonNull<Legacy>),
    Versioned(NonNull<Versioned>),
}

// SAFETY: the structure is this value's alone, and nothing of it changes until it is given back, which any
// thread may do.
unsafe impl Send for Taken {}
// SAFETY: as for `Send`.
unsafe impl Sync for Taken {}

impl Drop for Taken {
    fn drop(&mut self) {
        match *self {
            Taken::Legacy(managed) => give_back(managed),
            Taken::Versioned(managed) => give_back(managed),
        }
    }
}

fn give_back<M: Managed>(managed: NonNull<M>) {
    // SAFETY: it was taken out of its capsule, so that nobody else gives it back, and is not used any more.
    unsafe {
        if let Some(deleter) = managed.as_ref().deleter() {
            deleter(managed.as_ptr());
        }
    }
}

/// Takes the structure out of `capsule`, if it holds one of this sort.
fn take<M: Managed>(capsule: &Bound<'_, PyCapsule>) -> PyResult<Option<NonNull<M>>> {
    // SAFETY: the capsule is alive; what has this name holds such a structure, as the protocol says, which
    // belongs to whoever renames it. Names are constants.
    let found = unsafe {
        if ffi::PyCapsule_IsValid(capsule.as_ptr(), M::NAME.as_ptr()) == 0 {
            return Ok(None);
        }
        let found = ffi::PyCapsule_GetPointer(capsule.as_ptr(), M::NAME.as_ptr());
        (ffi::PyCapsule_SetName(capsule.as_ptr(), M::USED.as_ptr()) == 0).then_some(found)
    };
    let found = found.ok_or_else(|| PyErr::fetch(capsule.py()))?;
    Ok(NonNull::new(found.cast()))
}

impl Borrowed {
    /// # Errors
    /// `TypeError` for a capsule that holds no tensor any more or one of another version.
    fn take<'py>(capsule: &Bound<'py, PyCapsule>) -> PyResult<Bound<'py, Self>> {
        let taken = match take(capsule)? {
            Some(managed) => Some(Taken::Versioned(managed)),
            None => take(capsule)?.map(Taken::Legacy),
        };
        let used = || {
            let names = [Versioned::NAME, Legacy::NAME].map(CStr::to_string_lossy).join("` or `");
            PyTypeError::new_err(format!("a capsule that is no `{names}`, or was used"))
        };
        let tensor = Borrowed(taken.ok_or_else(used)?);
        let version = tensor.version();
        if version.major != VERSION.major {
            return Err(PyTypeError::new_err(format!("DLPack of version {}", version.major)));
        }
        Bound::new(capsule.py(), tensor)
    }

    fn tensor(&self) -> &Tensor {
        // SAFETY: it is there until this value is dropped.
        unsafe {
            match &self.0 {
                Taken::Legacy(managed) => managed.as_ref().tensor(),
                Taken::Versioned(managed) => managed.as_ref().tensor(),
            }
        }
    }

    fn version(&self) -> raw::Version {
        // SAFETY: as above. Where versions differ the structure starts alike.
        unsafe {
            match &self.0 {
                Taken::Legacy(managed) => managed.as_ref().version(),
                Taken::Versioned(managed) => managed.as_ref().version(),
            }
        }
    }

    fn is_writable(&self) -> bool {
        // SAFETY: as above.
        unsafe {
            match &self.0 {
                Taken::Legacy(managed) => managed.as_ref().is_writable(),
                Taken::Versioned(managed) => managed.as_ref().is_writable(),
            }
        }
    }

    /// What it describes, which `owner` keeps.
    fn array(&self, owner: Arc<Py<Self>>) -> PyResult<Array> {
        let tensor = self.tensor();
        let fields = dtype::fields(tensor.dtype)?;
        let shape = extents(tensor)?;
        let strides = match numbers(tensor.strides, shape.len()) {
            None => packed_strides(&shape, fields.item_bytes()),
            Some(strides) => in_bytes(strides, fields.item_bytes())?,
        };
        let first = (tensor.data.addr() as u64).wrapping_add(tensor.byte_offset);
        let known = Known::Ordinal(tensor.device.id);
        let (place, after) = (Place::Device(first, known), Vec::new());
        Ok(Array { place, shape, strides, fields, writable: self.is_writable(), after, owner })
    }
}

fn extents(tensor: &Tensor) -> PyResult<Vec<u64>> {
    let wrong = || PyValueError::new_err("a tensor without a shape that can be");
    let rank = usize::try_from(tensor.rank).ok().filter(|&rank| rank <= MOST_RANK);
    let rank = rank.ok_or_else(wrong)?;
    let shape = if rank == 0 { Some(&[][..]) } else { numbers(tensor.shape, rank) };
    let extent = |&extent: &i64| u64::try_from(extent).map_err(|_| wrong());
    shape.ok_or_else(wrong)?.iter().map(extent).collect()
}

/// The `count` numbers at `start`, unless that is null.
fn numbers<'a>(start: *const i64, count: usize) -> Option<&'a [i64]> {
    // SAFETY: a tensor has as many, as the protocol says, while it is held by who asks.
    (!start.is_null()).then(|| unsafe { std::slice::from_raw_parts(start, count) })
}

/// # Errors
/// `ValueError` for strides that no address has.
fn in_bytes(strides: &[i64], item_bytes: u64) -> PyResult<Vec<i64>> {
    let wrong = || PyValueError::new_err("strides that no address has");
    let item = i64::try_from(item_bytes).map_err(|_| wrong())?;
    strides.iter().map(|stride| stride.checked_mul(item).ok_or_else(wrong)).collect()
}
