//! What the kernel says of the machine and of this process.

use std::fs;

/// The processor's name and the number of cores that this process may use.
pub(crate) fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|l| l.strip_prefix("model name")?.split(": ").nth(1));
    format!("{}, {cores} cores", model.unwrap_or(std::env::consts::ARCH))
}

/// Counts the most memory in use from now on; `false` where the kernel goes on from the start.
pub(crate) fn reset_peak() -> bool {
    fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// The most memory that was in use at once.
pub(crate) fn peak_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    kibibytes(&status, "VmHWM:").map(|kib| kib << 10)
}

/// The bytes that this process has had read from and written to disks.
pub(crate) fn disk_bytes() -> Option<[u64; 2]> {
    let text = fs::read_to_string("/proc/self/io").ok()?;
    let count = |name| text.lines().find_map(|l| l.strip_prefix(name)?.trim().parse().ok());
    Some([count("read_bytes:")?, count("write_bytes:")?])
}

fn kibibytes(status: &str, name: &str) -> Option<u64> {
    let value = status.lines().find_map(|l| l.strip_prefix(name))?;
    value.trim().strip_suffix(" kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_line_is_read() {
        assert_eq!(kibibytes("Name:\tiso\nVmHWM:\t  123 kB\n", "VmHWM:"), Some(123));
        assert_eq!(kibibytes("VmHWM: x kB", "VmHWM:"), None);
    }

    #[test]
    fn the_peak_is_at_least_what_is_held() {
        let held = vec![1u8; 32 << 20];
        assert!(peak_bytes().is_none_or(|peak| peak > held.len() as u64));
    }
}
