//! DLPack's structures, as `dlpack.h` of version 1.1 has them. Those of 1.x that are newer only add to the
//! meaning of numbers.

use std::ffi::{CStr, c_void};

/// Where a tensor is: kinds of devices.
pub(crate) const CUDA: i32 = 2;
pub(crate) const CUDA_MANAGED: i32 = 13;

/// Kinds of elements.
pub(crate) const INT: u8 = 0;
pub(crate) const UINT: u8 = 1;
pub(crate) const FLOAT: u8 = 2;
pub(crate) const BFLOAT: u8 = 4;
pub(crate) const COMPLEX: u8 = 5;
pub(crate) const BOOL: u8 = 6;
pub(crate) const FLOAT8_E4M3FN: u8 = 10;
pub(crate) const FLOAT8_E4M3FNUZ: u8 = 11;
pub(crate) const FLOAT8_E5M2: u8 = 12;
pub(crate) const FLOAT8_E5M2FNUZ: u8 = 13;
pub(crate) const FLOAT8_E8M0FNU: u8 = 14;

/// What a versioned tensor's `flags` say: it may not be written.
pub(crate) const READ_ONLY: u64 = 1;

#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) kind: i32,
    pub(crate) id: i32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DataType {
    pub(crate) code: u8,
    pub(crate) bits: u8,
    pub(crate) lanes: u16,
}

/// `DLTensor`: strides count elements, and are null where it is packed, slowest first.
#[repr(C)]
pub(crate) struct Tensor {
    pub(crate) data: *mut c_void,
    pub(crate) device: Device,
    pub(crate) rank: i32,
    pub(crate) dtype: DataType,
    pub(crate) shape: *const i64,
    pub(crate) strides: *const i64,
    pub(crate) byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
pub(crate) struct Legacy {
    pub(crate) tensor: Tensor,
    pub(crate) context: *mut c_void,
    pub(crate) deleter: Option<unsafe extern "C" fn(*mut Legacy)>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
pub(crate) struct Versioned {
    pub(crate) version: Version,
    pub(crate) context: *mut c_void,
    pub(crate) deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    pub(crate) flags: u64,
    pub(crate) tensor: Tensor,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

/// What is asked for and given.
pub(crate) const VERSION: Version = Version { major: 1, minor: 1 };

/// Either structure, as capsules hold it.
pub(crate) trait Managed: Sized + 'static {
    /// What a capsule is called that holds one, and once it was taken out.
    const NAME: &'static CStr;
    const USED: &'static CStr;

    fn tensor(&self) -> &Tensor;
    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)>;
    fn version(&self) -> Version;
    fn is_writable(&self) -> bool;
}

impl Managed for Legacy {
    const NAME: &'static CStr = c"dltensor";
    const USED: &'static CStr = c"used_dltensor";

    fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)> {
        self.deleter
    }

    /// It says nothing of versions.
    fn version(&self) -> Version {
        Version { major: VERSION.major, minor: 0 }
    }

    /// It can't say otherwise.
    fn is_writable(&self) -> bool {
        true
    }
}

impl Managed for Versioned {
    const NAME: &'static CStr = c"dltensor_versioned";
    const USED: &'static CStr = c"used_dltensor_versioned";

    fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)> {
        self.deleter
    }

    fn version(&self) -> Version {
        self.version
    }

    fn is_writable(&self) -> bool {
        self.flags & READ_ONLY == 0
    }
}
