//! What an address is.

use super::raw;
use super::{Context, Failure};
use std::ffi::{c_uint, c_void};
use std::ops::Range;

/// Answers to [`raw::POINTER`], in its order: each is a number of its low bytes, and all are zero of an address
/// that the driver doesn't know.
type Answers = [u64; raw::POINTER.len()];

impl Context {
    /// The allocation that the byte at `address` lies in, where that is memory of this context's device. Such
    /// that is of no context, as what pools and mappings have, is every context's; managed memory is the
    /// device's that it was allocated for.
    pub(crate) fn allocation(&self, address: u64) -> Result<Option<Range<u64>>, Failure> {
        let [context, kind, is_managed, device, start, bytes] = self.describe(address)?;
        let is_of_device = kind as c_uint == raw::DEVICE || is_managed != 0;
        let is_ours = context == 0 || context == self.raw.expose_provenance() as u64;
        let is_here = device as u32 == self.device.cast_unsigned();
        let is_found = is_of_device && is_ours && is_here && bytes > 0;
        Ok(is_found.then(|| start..start.saturating_add(bytes)))
    }

    /// The allocation that the byte at `address` lies in, whosever it is.
    pub(super) fn range(&self, address: u64) -> Result<Option<Range<u64>>, Failure> {
        let [.., start, bytes] = self.describe(address)?;
        let range = start..start.saturating_add(bytes);
        Ok(range.contains(&address).then_some(range))
    }

    fn describe(&self, address: u64) -> Result<Answers, Failure> {
        let mut answers = Answers::default();
        let places = answers.each_mut().map(|answer| std::ptr::from_mut(answer).cast::<c_void>());
        self.with("cuPointerGetAttributes", |api| {
            let (count, asked) = (raw::POINTER.len() as c_uint, raw::POINTER.as_ptr());
            // SAFETY: as many questions as places, none of whose answers has more than eight bytes.
            unsafe { (api.memory.describe)(count, asked, places.as_ptr(), address) }
        })?;
        Ok(answers)
    }

    /// The device's number.
    pub(crate) fn ordinal(&self) -> i32 {
        self.device
    }
}
