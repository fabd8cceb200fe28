//! What CUDA says, in the words of channels.

use crate::driver::OUT_OF_MEMORY;
use channel::model::ChannelErrorKind;

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

/// The kind of error that `code` is.
pub(crate) fn kind_of(code: i32) -> ChannelErrorKind {
    match code {
        OUT_OF_MEMORY => ChannelErrorKind::OutOfMemory,
        code if is_for_good(code) => ChannelErrorKind::DeviceLost,
        _ => ChannelErrorKind::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_kinds() {
        assert_eq!(kind_of(1), ChannelErrorKind::Io);
        assert_eq!(kind_of(2), ChannelErrorKind::OutOfMemory);
        for sticky in [46, 700, 715, 719, 999] {
            assert_eq!(kind_of(sticky), ChannelErrorKind::DeviceLost);
        }
    }
}
