//! Memory of the host that was there before devices reached it.

use super::{Context, Failure, INVALID_VALUE, raw};
use channel::Region;
use std::ffi::c_void;
use std::sync::Arc;

/// The call that registers memory, in errors.
const REGISTER: &str = "cuMemHostRegister";

/// Memory of the host that all devices copy to and from by themselves, as long as this value.
#[derive(Debug)]
pub(crate) struct Registered {
    context: Arc<Context>,
    /// Let go last.
    host: Arc<Region>,
}

impl Registered {
    /// All of `host`, memory of the host that has bytes.
    pub(crate) fn new(context: &Arc<Context>, host: &Arc<Region>) -> Result<Self, Failure> {
        let nowhere = || context.driver.failure(REGISTER, INVALID_VALUE);
        let (start, len_bytes) = place(host).ok_or_else(nowhere)?;
        context.with(REGISTER, |api| {
            // SAFETY: the bytes are there as long as the region, which this value keeps until it has undone this.
            unsafe { (api.memory.register)(start, len_bytes, raw::PORTABLE) }
        })?;
        Ok(Registered { context: Arc::clone(context), host: Arc::clone(host) })
    }
}

/// Where a region of the host's starts, and how long it is.
fn place(host: &Region) -> Option<(*mut c_void, usize)> {
    let span = host.host_span().filter(|span| span.len_bytes() > 0)?;
    Some((span.start().as_ptr().cast(), span.len_bytes()))
}

impl Drop for Registered {
    fn drop(&mut self) {
        let Some((start, _)) = place(&self.host) else { return };
        // SAFETY: what was registered for this value, which no copy needs any more: who did held the region that
        // owned it. What fails here leaves nothing to do.
        let _ = self
            .context
            .with("cuMemHostUnregister", |api| unsafe { (api.memory.unregister)(start) });
    }
}
