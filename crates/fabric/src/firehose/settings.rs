use super::buckets::Budget;
use super::hoses::Rules;
use super::run::RUN_BYTES;
use crate::error::Error;

/// What part of its share a rank keeps of each peer's memory, whatever others ask for.
const KEPT: u64 = 32;

/// The most runs of buckets in a message.
const MOST_RUNS: usize = 256;

/// When memory of others is pinned for puts and gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Where it is used, and it stays so while there is room: whoever comes back asks nobody.
    Firehose,
    /// All of it, from the start.
    Everything,
    /// For each put or get, and it stays so; its owner is asked each time.
    Rendezvous,
    /// For each put or get, and no longer.
    RendezvousUnpin,
    /// Never: bytes go through memory that is pinned already, in messages, and their owner copies them.
    Bounce,
}

/// How much memory is pinned, and how. All ranks have the same settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// When.
    pub strategy: Strategy,
    /// The bytes of a bucket, which is pinned as a whole: a multiple of a page.
    pub bucket_bytes: u64,
    /// M: how much others may have pinned of a rank's memory, in equal shares at first. What part of
    /// its share a rank does not use, others may have.
    pub lent_bytes: u64,
    /// MAXVICTIM: how much more may be pinned, for the rank itself and of what nobody needs.
    pub victim_bytes: u64,
    /// How many buckets that follow each other are one region, which is pinned and given up by others
    /// as a whole; 1 for buckets alone.
    pub region_buckets: u64,
}

impl Settings {
    /// Firehoses to buckets of a page, of so much memory of each rank.
    #[must_use]
    pub fn new(lent_bytes: u64, victim_bytes: u64) -> Settings {
        let bucket_bytes = rustix::param::page_size() as u64;
        let strategy = Strategy::Firehose;
        Settings { strategy, bucket_bytes, lent_bytes, victim_bytes, region_buckets: 1 }
    }

    /// What each rank may hold of each other's memory, in buckets, where there are `size` ranks.
    pub(crate) fn share(&self, size: u32) -> u64 {
        self.lent_bytes / self.bucket_bytes / u64::from(size - 1).max(1)
    }

    pub(crate) fn check(&self, size: u32) -> Result<(), Error> {
        let wrong = |name, why| Err(Error::Config { name, why });
        let page = rustix::param::page_size() as u64;
        if self.bucket_bytes == 0 || !self.bucket_bytes.is_multiple_of(page) {
            return wrong("bucket_bytes", format!("should be a multiple of a page, {page} B"));
        }
        if self.region_buckets == 0 {
            return wrong("region_buckets", "should be 1 or more".to_owned());
        }
        if self.share(size) == 0 {
            let why = format!("should be a bucket for each of {} peers", size - 1);
            return wrong("lent_bytes", why);
        }
        Ok(())
    }

    /// Those of firehoses; messages have a payload of `medium_bytes` at most.
    pub(crate) fn rules(&self, size: u32, medium_bytes: usize) -> Rules {
        let (share, region) = (self.share(size), self.region_buckets);
        // A region at both ends of what is acquired may reach beyond it.
        let floor = share.div_ceil(KEPT).max(4 * (region - 1)).min(share);
        let runs = (medium_bytes / RUN_BYTES).clamp(2, MOST_RUNS);
        let stays = self.strategy == Strategy::Firehose;
        Rules { share, floor, region, runs, stays }
    }

    /// That of a rank whose memory has so many buckets.
    pub(crate) fn budget(&self, buckets: u64) -> Budget {
        let lent = self.lent_bytes / self.bucket_bytes;
        match self.strategy {
            Strategy::Firehose | Strategy::RendezvousUnpin => {
                let kept = self.victim_bytes / self.bucket_bytes;
                let is_kept = self.strategy == Strategy::Firehose;
                Budget { lent, kept, victims: if is_kept { u64::MAX } else { 0 } }
            }
            _ => Budget { lent, kept: buckets, victims: u64::MAX },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cant_be_is_named() {
        let right = Settings::new(1 << 20, 0);
        assert!(right.check(2).is_ok() && right.check(1).is_ok());
        for (name, wrong) in [
            ("bucket_bytes", Settings { bucket_bytes: 1000, ..right }),
            ("bucket_bytes", Settings { bucket_bytes: 0, ..right }),
            ("region_buckets", Settings { region_buckets: 0, ..right }),
            ("lent_bytes", Settings { lent_bytes: 4 * right.bucket_bytes, ..right }),
        ] {
            let error = wrong.check(6).unwrap_err().to_string();
            assert!(error.starts_with(name), "{error}");
        }
    }
}
