//! What of PMIx's interface (`pmix.h`, versions 3 and later) is used here, found in the library when it is
//! loaded.

use libloading::{Error, Library};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;

/// The first version with these structures: in those before, values are shorter.
pub(crate) const LEAST_VERSION: u32 = 3;

pub(crate) type Status = c_int;

pub(crate) const SUCCESS: Status = 0;

/// The rank that stands for the whole job.
pub(crate) const ANY_RANK: u32 = u32::MAX - 1;

/// Who may ask for what was put: ranks of all nodes.
pub(crate) const GLOBAL: u8 = 3;

/// Kinds of values.
pub(crate) const BOOL: u16 = 1;
pub(crate) const STRING: u16 = 3;
pub(crate) const INT: u16 = 6;
pub(crate) const UINT32: u16 = 14;

pub(crate) const JOB_SIZE: &CStr = c"pmix.job.size";
pub(crate) const LOCAL_SIZE: &CStr = c"pmix.local.size";
pub(crate) const COLLECT: &CStr = c"pmix.collect";
pub(crate) const TIMEOUT: &CStr = c"pmix.timeout";

const NAMESPACE_BYTES: usize = 256;
const KEY_BYTES: usize = 512;

/// A rank of a job.
#[repr(C)]
#[derive(Clone)]
pub(crate) struct Process {
    pub(crate) namespace: [c_char; NAMESPACE_BYTES],
    pub(crate) rank: u32,
}

impl Process {
    pub(crate) fn nobody() -> Process {
        Process { namespace: [0; NAMESPACE_BYTES], rank: 0 }
    }
}

/// A value; its kind says which of its data counts.
#[repr(C)]
pub(crate) struct Value {
    pub(crate) kind: u16,
    pub(crate) data: Data,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union Data {
    pub(crate) flag: bool,
    pub(crate) integer: c_int,
    pub(crate) number: u32,
    pub(crate) text: *mut c_char,
    /// The largest of them: two pointers and a byte.
    _rest: [*mut c_void; 3],
}

impl Value {
    /// Of `kind`, whose data is zero beside what is then written.
    fn new(kind: u16) -> Value {
        Value { kind, data: Data { _rest: [std::ptr::null_mut(); 3] } }
    }

    pub(crate) fn flag(flag: bool) -> Value {
        let mut value = Value::new(BOOL);
        value.data.flag = flag;
        value
    }

    pub(crate) fn integer(integer: c_int) -> Value {
        let mut value = Value::new(INT);
        value.data.integer = integer;
        value
    }

    /// Lends `text`, which is only read.
    pub(crate) fn text(text: &CStr) -> Value {
        let mut value = Value::new(STRING);
        value.data.text = text.as_ptr().cast_mut();
        value
    }
}

/// A wish for a call, which does without where it doesn't know it.
#[repr(C)]
pub(crate) struct Info {
    pub(crate) key: [c_char; KEY_BYTES],
    pub(crate) flags: u32,
    pub(crate) value: Value,
}

impl Info {
    pub(crate) fn new(key: &CStr, value: Value) -> Info {
        let mut info = Info { key: [0; KEY_BYTES], flags: 0, value };
        let bytes = key.to_bytes().iter().map(|&byte| byte as c_char);
        info.key.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
        info
    }
}

/// The library.
pub(crate) struct Api {
    pub(crate) version: unsafe extern "C" fn() -> *const c_char,
    pub(crate) error: unsafe extern "C" fn(Status) -> *const c_char,
    pub(crate) init: unsafe extern "C" fn(*mut Process, *const Info, usize) -> Status,
    pub(crate) finalize: unsafe extern "C" fn(*const Info, usize) -> Status,
    pub(crate) get: unsafe extern "C" fn(
        *const Process,
        *const c_char,
        *const Info,
        usize,
        *mut *mut Value,
    ) -> Status,
    pub(crate) put: unsafe extern "C" fn(u8, *const c_char, *const Value) -> Status,
    pub(crate) commit: unsafe extern "C" fn() -> Status,
    pub(crate) fence: unsafe extern "C" fn(*const Process, usize, *const Info, usize) -> Status,
}

impl Api {
    /// Loads the library, for good: it has threads, and others of this process may use it too.
    pub(crate) fn load(path: &Path) -> Result<Api, Error> {
        // SAFETY: that file is to be PMIx, whose functions have these types; loading it runs what it
        // runs to set itself up. It is never unloaded.
        unsafe {
            let library = Library::new(path)?;
            let api = Api {
                version: *library.get("PMIx_Get_version")?,
                error: *library.get("PMIx_Error_string")?,
                init: *library.get("PMIx_Init")?,
                finalize: *library.get("PMIx_Finalize")?,
                get: *library.get("PMIx_Get")?,
                put: *library.get("PMIx_Put")?,
                commit: *library.get("PMIx_Commit")?,
                fence: *library.get("PMIx_Fence")?,
            };
            std::mem::forget(library);
            Ok(api)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    /// As the headers of versions 3 to 5 have them on machines of 64 bits.
    #[test]
    fn structures_are_as_long_as_the_interfaces() {
        assert_eq!((size_of::<Process>(), offset_of!(Process, rank)), (260, 256));
        assert_eq!((size_of::<Value>(), offset_of!(Value, data)), (32, 8));
        assert_eq!((size_of::<Info>(), offset_of!(Info, value)), (552, 520));
    }
}
