use crate::error::Error;
use std::io;
use std::time::Duration;

/// The variable that says where ranks meet.
pub const ROOT: &str = "ISOMETRY_ROOT";
/// The variable that says which rank this is.
pub const RANK: &str = "ISOMETRY_RANK";
/// The variable that says how many ranks there are.
pub const SIZE: &str = "ISOMETRY_SIZE";
/// The variable that holds the cluster's key.
pub const KEY: &str = "ISOMETRY_KEY";

/// What a root on one machine starts with.
const LOCAL: &str = "local:";

/// The most ranks of one machine: each has queues for all.
const MOST_RANKS: u32 = 256;

/// Who joins what.
#[derive(Clone)]
pub struct Config {
    /// Where ranks meet: `local:NAME`, on one machine.
    pub root: String,
    /// Which rank this is, less than `size`.
    pub rank: u32,
    /// How many there are, at most 256.
    pub size: u32,
    /// What all ranks know and no one else does; not empty where there are several.
    pub key: Vec<u8>,
    /// How many bytes of memory this rank publishes, all zero at first.
    pub segment_bytes: u64,
    /// How long to wait for others to join. Default: a minute.
    pub timeout: Duration,
}

// The key is a secret.
impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Config { root, rank, size, segment_bytes, timeout, .. } = self;
        let mut f = f.debug_struct("Config");
        f.field("root", root).field("rank", rank).field("size", size);
        f.field("segment_bytes", segment_bytes).field("timeout", timeout).finish_non_exhaustive()
    }
}

impl Config {
    /// A rank of several that meet at `root`.
    #[must_use]
    pub fn new(root: &str, (rank, size): (u32, u32), key: &[u8]) -> Config {
        let (root, key) = (root.to_owned(), key.to_vec());
        Config { root, rank, size, key, segment_bytes: 0, timeout: Duration::from_secs(60) }
    }

    /// What the variables [`ROOT`], [`RANK`], [`SIZE`] and [`KEY`] say, as `lookup` gives them; one
    /// rank alone where none is set.
    ///
    /// # Errors
    /// [`Error::Config`] where one is missing or can't be.
    pub fn from_variables(lookup: impl Fn(&str) -> Option<String>) -> Result<Config, Error> {
        if [ROOT, RANK, SIZE].iter().all(|name| lookup(name).is_none()) {
            return Ok(Config::new("local:alone", (0, 1), &[]));
        }
        let text = |name: &'static str| {
            lookup(name).ok_or(Error::Config { name, why: "is not set, others are".to_owned() })
        };
        let number = |name: &'static str| {
            let text = text(name)?;
            let why = || format!("`{text}` is no rank or number of ranks");
            text.parse::<u32>().map_err(|_| Error::Config { name, why: why() })
        };
        let size = number(SIZE)?;
        let key = if size > 1 { text(KEY)? } else { String::new() };
        let config = Config::new(&text(ROOT)?, (number(RANK)?, size), key.as_bytes());
        config.check()?;
        Ok(config)
    }

    /// The name of the meeting place.
    pub(crate) fn check(&self) -> Result<&str, Error> {
        let wrong = |name, why: String| Err(Error::Config { name, why });
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let name = self.root.strip_prefix(LOCAL).unwrap_or_default();
        if name.is_empty() || name.len() > 64 || !name.chars().all(allowed) {
            let why = "should be `local:NAME`, of up to 64 letters, digits, `_` and `-`";
            return wrong(ROOT, format!("`{}` {why}", self.root));
        }
        if !(1..=MOST_RANKS).contains(&self.size) {
            return wrong(SIZE, format!("{} ranks; it takes 1 to {MOST_RANKS}", self.size));
        }
        if self.rank >= self.size {
            return wrong(RANK, format!("rank {} of {} ranks", self.rank, self.size));
        }
        if self.size > 1 && self.key.is_empty() {
            return wrong(KEY, "is empty; ranks need a secret that no one else knows".to_owned());
        }
        Ok(name)
    }
}

/// Fills `bytes` with what nobody can foretell.
pub(crate) fn choose(bytes: &mut [u8]) -> Result<(), Error> {
    let failed = |e| Error::Io { doing: "choosing at random", source: io::Error::other(e) };
    getrandom::fill(bytes).map_err(failed)
}

/// Ranks of one machine that are to be started.
#[derive(Clone)]
pub struct Job {
    root: String,
    key: String,
    size: u32,
}

// The key is a secret.
impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job")
            .field("root", &self.root)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl Job {
    /// `size` ranks that meet where no others do, with a key of their own.
    ///
    /// # Errors
    /// [`Error::Config`] where there may not be so many; [`Error::Io`] where nothing is random.
    pub fn new(size: u32) -> Result<Job, Error> {
        let mut random = [0; 40];
        choose(&mut random)?;
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let (name, key) = random.split_at(8);
        let job = Job { root: format!("{LOCAL}{}", hex(name)), key: hex(key), size };
        Config::new(&job.root, (0, size), job.key.as_bytes()).check()?;
        Ok(job)
    }

    /// The variables that a process finds in its environment as `rank`, and their values.
    #[must_use]
    pub fn variables(&self, rank: u32) -> [(&'static str, String); 4] {
        let Job { root, key, size } = self;
        [
            (ROOT, root.clone()),
            (RANK, rank.to_string()),
            (SIZE, size.to_string()),
            (KEY, key.clone()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(variables: &[(&str, &str)]) -> Result<Config, Error> {
        let get = |name: &str| variables.iter().find(|v| v.0 == name).map(|v| v.1.to_owned());
        Config::from_variables(get)
    }

    #[test]
    fn variables_are_all_there_or_none() {
        let alone = from(&[]).unwrap();
        assert_eq!((alone.rank, alone.size), (0, 1));
        let all = [(ROOT, "local:a"), (RANK, "1"), (SIZE, "2"), (KEY, "k")];
        let config = from(&all).unwrap();
        assert_eq!((config.rank, config.size, config.key.as_slice()), (1, 2, &b"k"[..]));
        assert!(!format!("{config:?}").contains("key"));
        for missing in 0..4 {
            let some: Vec<_> =
                all.iter().enumerate().filter(|v| v.0 != missing).map(|v| *v.1).collect();
            let error = from(&some).unwrap_err().to_string();
            assert!(error.starts_with(all[missing].0), "{error}");
        }
    }

    #[test]
    fn what_cant_be_is_named() {
        let all = [(ROOT, "local:a"), (RANK, "1"), (SIZE, "2"), (KEY, "k")];
        let wrong = [
            (ROOT, "10.0.0.1:80"),
            (ROOT, "local:"),
            (ROOT, "local:a/b"),
            (RANK, "2"),
            (RANK, "-1"),
            (SIZE, "0"),
            (SIZE, "257"),
            (KEY, ""),
        ];
        for (name, value) in wrong {
            let changed = all.map(|v| if v.0 == name { (name, value) } else { v });
            let error = from(&changed).unwrap_err();
            assert!(matches!(error, Error::Config { .. }), "{name}={value}: {error}");
        }
    }
}
