//! The caches of the machine.

use std::fs;

/// The bytes of the largest cache of the first core, as the kernel says.
#[must_use]
pub fn last_cache_bytes() -> Option<u64> {
    let folder = "/sys/devices/system/cpu/cpu0/cache";
    let read = |index: u32| fs::read_to_string(format!("{folder}/index{index}/size")).ok();
    (0..8).filter_map(|index| cache_bytes(&read(index)?)).max()
}

/// `107520K` in bytes.
fn cache_bytes(size: &str) -> Option<u64> {
    let size = size.trim();
    let (digits, shift) = match size.strip_suffix('K') {
        Some(digits) => (digits, 10),
        None => (size.strip_suffix('M')?, 20),
    };
    digits.parse::<u64>().ok().map(|n| n << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caches_size_is_read() {
        assert_eq!(cache_bytes("107520K\n"), Some(107_520 << 10));
        assert_eq!(cache_bytes("2M"), Some(2 << 20));
        assert_eq!(cache_bytes("2"), None);
    }
}
