//! How much memory this process may use.

use rustix::process::{Resource, getrlimit};
use std::fs;
use std::path::{Path, PathBuf};

/// What bounds the memory of this process. `None` where nothing does, or nothing says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The machine's memory.
    pub physical_bytes: Option<u64>,
    /// What the kernel could hand out now without swapping.
    pub available_bytes: Option<u64>,
    /// The least limit of the process's control groups.
    pub cgroup_bytes: Option<u64>,
    /// `RLIMIT_AS`.
    pub address_space_bytes: Option<u64>,
}

/// The part of what the process may use that staging takes by default: one in so many.
const STAGING_SHARE: u64 = 16;
/// Staging beyond this makes no transfer faster.
const STAGING_MOST_BYTES: u64 = 192 << 20;

impl Limits {
    /// What the kernel says.
    #[must_use]
    pub fn detect() -> Self {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Limits {
            physical_bytes: meminfo_bytes(&meminfo, "MemTotal"),
            available_bytes: meminfo_bytes(&meminfo, "MemAvailable"),
            cgroup_bytes: cgroup_bytes(&groups, Path::new("/sys/fs/cgroup")),
            address_space_bytes: getrlimit(Resource::As).current,
        }
    }

    /// The least of the limits on all memory of the process; none known is none.
    #[must_use]
    pub fn usable_bytes(&self) -> Option<u64> {
        [self.physical_bytes, self.cgroup_bytes, self.address_space_bytes]
            .into_iter()
            .flatten()
            .min()
    }

    /// Why there is no room for `len_bytes` more, which are all touched at once where `are_touched`: for
    /// those whom the kernel would kill rather than refuse.
    #[must_use]
    pub fn refusal(&self, len_bytes: u64, are_touched: bool) -> Option<&'static str> {
        let is_beyond = |most: Option<u64>| most.is_some_and(|most| len_bytes > most);
        if is_beyond(self.usable_bytes()) {
            return Some("more than this process may use");
        }
        (are_touched && is_beyond(self.available_bytes)).then_some("more than is available")
    }

    /// The staging budget where the user names none: a sixteenth of what the process may use, at
    /// most 192 MiB.
    #[must_use]
    pub fn default_staging_bytes(&self) -> u64 {
        let share = self.usable_bytes().map_or(STAGING_MOST_BYTES, |b| b / STAGING_SHARE);
        share.min(STAGING_MOST_BYTES)
    }
}

/// The value of `name` in the format of `/proc/meminfo`.
fn meminfo_bytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The least limit from the groups in `groups` (the format of `/proc/self/cgroup`) up to `root`,
/// where the groups are mounted.
fn cgroup_bytes(groups: &str, root: &Path) -> Option<u64> {
    groups.lines().filter_map(|line| group_bytes(line, root)).min()
}

fn group_bytes(line: &str, root: &Path) -> Option<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, group) = (parts.next()?, parts.next()?);
    let (root, file): (PathBuf, _) = match controllers {
        "" => (root.to_owned(), "memory.max"),
        _ if controllers.split(',').any(|c| c == "memory") => {
            (root.join("memory"), "memory.limit_in_bytes")
        }
        _ => return None,
    };
    // Inside a container the group's own path may not be there, yet the mount's root is it.
    let leaf = root.join(group.trim_start_matches('/'));
    let limit = |dir: &Path| fs::read_to_string(dir.join(file)).ok()?.trim().parse::<u64>().ok();
    leaf.ancestors().take_while(|dir| dir.starts_with(&root)).filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read() {
        let text = "MemTotal:       24628440 kB\nMemFree: 1 kB\nMemAvailable:   100 kB\n";
        assert_eq!(meminfo_bytes(text, "MemTotal"), Some(24_628_440 * 1024));
        assert_eq!(meminfo_bytes(text, "MemAvailable"), Some(102_400));
        assert_eq!(meminfo_bytes(text, "Mem"), None);
    }

    #[test]
    fn the_least_group_limit_counts() {
        let dir = std::env::temp_dir().join(format!("isometry-limits-{}", std::process::id()));
        let leaf = dir.join("a/b");
        fs::create_dir_all(&leaf).unwrap();
        fs::create_dir_all(dir.join("memory/c")).unwrap();
        fs::write(leaf.join("memory.max"), "max\n").unwrap();
        fs::write(dir.join("a/memory.max"), "5000\n").unwrap();
        fs::write(dir.join("memory/memory.limit_in_bytes"), "7000\n").unwrap();
        let new = cgroup_bytes("0::/a/b\n", &dir);
        let old = cgroup_bytes("3:cpu,memory:/elsewhere\n2:pids:/x\n", &dir);
        let none = cgroup_bytes("0::/z\n", &dir);
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!((new, old, none), (Some(5000), Some(7000), None));
    }

    #[test]
    fn the_budget_follows_the_limits() {
        let mut limits = Limits {
            physical_bytes: Some(64 << 30),
            available_bytes: Some(1 << 30),
            cgroup_bytes: None,
            address_space_bytes: None,
        };
        assert_eq!(limits.default_staging_bytes(), 192 << 20);
        assert_eq!(limits.refusal(1 << 30, true), None);
        assert_eq!(limits.refusal(2 << 30, true), Some("more than is available"));
        assert_eq!(limits.refusal(2 << 30, false), None);
        limits.cgroup_bytes = Some(512 << 20);
        assert_eq!(limits.refusal(1 << 30, false), Some("more than this process may use"));
        assert_eq!(limits.default_staging_bytes(), 32 << 20);
        assert!(Limits::detect().physical_bytes.is_some_and(|b| b > 0));
    }
}
