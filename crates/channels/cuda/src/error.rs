//! What CUDA says, in the words of channels.

use crate::driver::{Failure, OUT_OF_MEMORY};
use channel::model::{ChannelError, ChannelErrorKind};

/// Codes after which a device, or all that this process has on it, does nothing any more: the driver
/// unloaded (4), the device gone or another's (46), the context gone (201, 709), uncorrectable memory
/// or links (214, 220, 226), faults of what ran on it (700, 702, 710, 714 to 719, 721), its server
/// gone (810), a device behind it (911), and what the driver has no word for (999).
fn is_for_good(code: i32) -> bool {
    matches!(
        code,
        4 | 46 | 201 | 214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721 | 810 | 911 | 999
    )
}

fn kind_of(code: i32) -> ChannelErrorKind {
    match code {
        OUT_OF_MEMORY => ChannelErrorKind::OutOfMemory,
        code if is_for_good(code) => ChannelErrorKind::DeviceLost,
        _ => ChannelErrorKind::Io,
    }
}

/// `failure` of the device called `name`.
pub(crate) fn failed(name: &str, failure: &Failure) -> ChannelError {
    ChannelError::new(kind_of(failure.code), format!("CUDA device `{name}`: {failure}"))
}

/// A device called `name` that was lost, for the reason that was told then.
pub(crate) fn lost(name: &str, why: &str) -> ChannelError {
    let detail = format!("CUDA device `{name}` is lost, and takes no more work: {why}");
    ChannelError::new(ChannelErrorKind::DeviceLost, detail)
}

/// Memory of, or near to, the device called `name` that can't be had.
pub(crate) fn no_memory(name: &str, len_bytes: u64, why: &str) -> ChannelError {
    let detail = format!("can't allocate {len_bytes} bytes for CUDA device `{name}`: {why}");
    ChannelError::new(ChannelErrorKind::OutOfMemory, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_call_code_and_device() {
        let of = |code| {
            let failure = Failure { call: "cuMemcpy2DAsync", code, name: "CUDA_ERROR_X".into() };
            failed("a", &failure)
        };
        assert_eq!(of(1).detail, "CUDA device `a`: cuMemcpy2DAsync: CUDA_ERROR_X (1)");
        assert_eq!(of(1).kind, ChannelErrorKind::Io);
        assert_eq!(of(2).kind, ChannelErrorKind::OutOfMemory);
        for sticky in [46, 700, 715, 719, 999] {
            assert_eq!(of(sticky).kind, ChannelErrorKind::DeviceLost);
        }
    }
}
