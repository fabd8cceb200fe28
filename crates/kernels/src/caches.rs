//! The data caches of a core, the one it shares with others, and how many pages it finds without a search, as far as
//! choices depend on them.
//!
//! **Hazard.** What a panel has of the source is gone before its turn comes, where a cache is smaller than it was
//! taken for. **Structure.** The processor says once what it has. Choices take parts of that, of no more than they
//! were measured with: what is larger is taken for as much.

use std::fmt;

/// Smaller caches are taken for what was measured with: no processor has such, and panels would have no rows.
const LEAST_BYTES: usize = 8 << 10;

/// A cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cache {
    pub(crate) bytes: usize,
    /// How many lines at one place it has.
    pub(crate) ways: usize,
}

impl Cache {
    /// Lines at multiples of this are at one place.
    pub(crate) const fn place_bytes(&self) -> usize {
        self.bytes / self.ways
    }

    fn at_most(self, most: Cache) -> Cache {
        Cache { bytes: self.bytes.min(most.bytes), ways: self.ways.min(most.ways) }
    }
}

/// Those of a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caches {
    pub(crate) first: Cache,
    pub(crate) second: Cache,
    /// What the third level keeps, for others as well.
    pub(crate) third_bytes: usize,
    /// How many pages of 4 KiB a core finds without a search of tables.
    pub(crate) pages: usize,
}

impl Caches {
    /// What choices were measured with: those of a Zen 3, of which a Zen 5 has as large a third level.
    pub(crate) const MEASURED: Caches = Caches {
        first: Cache { bytes: 32 << 10, ways: 8 },
        second: Cache { bytes: 512 << 10, ways: 8 },
        third_bytes: 32 << 20,
        pages: 2048,
    };

    /// What this processor says, up to [`Caches::MEASURED`], which is taken for what it doesn't say.
    pub(crate) fn detect() -> Caches {
        let Caches { first, second, third_bytes, pages } = Caches::MEASURED;
        let told = |level, most: Cache| match of_level(level) {
            Some(cache) if cache.bytes >= LEAST_BYTES => cache.at_most(most),
            _ => most,
        };
        let pages = pages_told().unwrap_or(pages).min(pages);
        let third = of_level(3).map_or(third_bytes, |cache| cache.bytes.min(third_bytes));
        Caches { first: told(1, first), second: told(2, second), third_bytes: third, pages }
    }
}

/// The cache for data of a level, if the processor tells of one.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn of_level(level: u32) -> Option<Cache> {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    // Intel's leaf; AMD's has the same form.
    const LEAVES: [(u32, u32); 2] = [(0, 4), (0x8000_0000, 0x8000_001D)];
    const MOST: u32 = 8;
    let has = |(first, leaf)| __cpuid(first).eax >= leaf;
    let leaves = LEAVES.into_iter().filter(|&it| has(it));
    let mut answers = leaves.flat_map(|(_, leaf)| (0..MOST).map(move |i| __cpuid_count(leaf, i)));
    answers.find_map(|it| cache_of(level, [it.eax, it.ebx, it.ecx]))
}

/// How many pages of 4 KiB the second level finds for data, if AMD made the processor: others leave 0 there.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn pages_told() -> Option<usize> {
    use std::arch::x86_64::__cpuid;
    const LEAF: u32 = 0x8000_0006;
    let pages = || (__cpuid(LEAF).ebx >> 16 & 0xFFF) as usize;
    (__cpuid(LEAF & 0x8000_0000).eax >= LEAF).then(pages).filter(|&pages| pages > 0)
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn pages_told() -> Option<usize> {
    None
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn of_level(_level: u32) -> Option<Cache> {
    None
}

/// What the registers of one of a processor's answers say, if it is of a cache for data of that level.
#[cfg(any(test, all(target_arch = "x86_64", not(miri))))]
fn cache_of(level: u32, [eax, ebx, ecx]: [u32; 3]) -> Option<Cache> {
    const DATA: u32 = 1;
    const ALL: u32 = 3;
    let bits = |of: u32, from: u32, count: u32| of >> from & ((1 << count) - 1);
    let is_for_data = [DATA, ALL].contains(&bits(eax, 0, 5));
    let more = |of, from, count| bits(of, from, count) as usize + 1;
    let (line, parts, ways) = (more(ebx, 0, 12), more(ebx, 12, 10), more(ebx, 22, 10));
    let sets = ecx as usize + 1;
    let found = is_for_data && bits(eax, 5, 3) == level;
    found.then(|| Cache { bytes: line * parts * ways * sets, ways })
}

impl fmt::Display for Caches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second] = [self.first, self.second].map(|cache| cache.bytes >> 10);
        let third = self.third_bytes >> 10;
        write!(f, "caches of {first}, {second} and {third} KiB, {} pages", self.pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_is_what_registers_say() {
        // Those of a Zen 3, and of a Xeon of 48 KiB with 12 ways and 2 MiB with 16.
        let line = |ways: u32| (ways - 1) << 22 | 63;
        let (first, second) = ([0x121, line(8), 63], [0x143, line(8), 1023]);
        assert_eq!(cache_of(1, first), Some(Caches::MEASURED.first));
        assert_eq!(cache_of(2, second), Some(Caches::MEASURED.second));
        assert_eq!(Caches::MEASURED.second.place_bytes(), 64 << 10);
        let (first, second) = ([0x121, line(12), 63], [0x143, line(16), 2047]);
        assert_eq!(cache_of(1, first), Some(Cache { bytes: 48 << 10, ways: 12 }));
        assert_eq!(cache_of(2, second), Some(Cache { bytes: 2 << 20, ways: 16 }));
        let code = [0x122, line(8), 63];
        assert_eq!([cache_of(1, code), cache_of(2, code), cache_of(1, [0; 3])], [None; 3]);
    }

    #[test]
    fn no_more_is_taken_than_was_measured() {
        let Caches { first, second, third_bytes, pages } = Caches::detect();
        assert!(first.at_most(Caches::MEASURED.first) == first && first.bytes > 0);
        assert!(second.at_most(Caches::MEASURED.second) == second && second.bytes > 0);
        assert!((1..=Caches::MEASURED.third_bytes).contains(&third_bytes));
        assert!((1..=Caches::MEASURED.pages).contains(&pages));
        let small = Cache { bytes: 256 << 10, ways: 4 };
        assert_eq!(small.at_most(Caches::MEASURED.second), small);
    }
}
