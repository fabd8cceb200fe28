//! Memory that processes of one machine share.

use super::raw::{self, IpcHandle};
use super::{Buffer, Context, Failure, INVALID_VALUE, Origin};
use std::sync::Arc;

/// The call that opens memory, in errors.
const OPEN: &str = "cuIpcOpenMemHandle";

impl Buffer {
    /// What another process opens it by; `None` where it was not allocated for this buffer, so that it may be a
    /// part of something.
    pub(crate) fn export(&self) -> Result<Option<[u8; 64]>, Failure> {
        if !matches!(self.origin, Origin::Allocated) {
            return Ok(None);
        }
        let mut handle = IpcHandle { bytes: [0; 64] };
        self.context.with("cuIpcGetMemHandle", |api| {
            // SAFETY: a place for a handle, and an allocation of this context's.
            unsafe { (api.memory.export)(&mut handle, self.address) }
        })?;
        Ok(Some(handle.bytes))
    }

    /// What another process has exported, where that has at least `len_bytes` bytes.
    pub(crate) fn open(
        context: &Arc<Context>,
        bytes: [u8; 64],
        len_bytes: usize,
    ) -> Result<Self, Failure> {
        let mut address = 0;
        context.with(OPEN, |api| {
            let handle = IpcHandle { bytes };
            // SAFETY: a place for an address; the driver refuses what is no handle.
            unsafe { (api.memory.open)(&mut address, handle, raw::LAZY_PEER_ACCESS) }
        })?;
        let origin = Origin::Opened;
        let opened = Buffer { context: Arc::clone(context), address, len_bytes, origin };
        let range = context.range(address)?;
        match range.is_some_and(|range| range.end - address >= len_bytes as u64) {
            true => Ok(opened),
            false => Err(context.driver.failure(OPEN, INVALID_VALUE)),
        }
    }

    /// Gives back what was opened.
    pub(super) fn close(&self) -> Result<(), Failure> {
        self.context.with("cuIpcCloseMemHandle", |api| {
            // SAFETY: it was opened in this context, is closed once, and no copy needs it any more.
            unsafe { (api.memory.close)(self.address) }
        })
    }
}
