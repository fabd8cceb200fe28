//! The one source of chance: everything random in a run comes from its seed.

/// A splitmix64 generator. The same seed gives the same numbers on every machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// The generator of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Rng { state: seed }
    }

    /// A generator of its own for a part of the run, so that drawing more there changes nothing
    /// elsewhere.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Rng::new(self.draw())
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `lo` to `hi`, both included.
    pub fn within(&mut self, lo: u64, hi: u64) -> u64 {
        debug_assert!(lo <= hi);
        lo + self.draw() % (hi - lo + 1)
    }

    /// An index below `len`, which is at least 1.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.within(0, len as u64 - 1)).expect("an index fits in usize")
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.draw() % 100 < percent
    }

    /// One of `choices`, which is not empty.
    pub fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())].clone()
    }

    /// Reorders `items`.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.index(i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_fixes_every_number() {
        let mut rng = Rng::new(0);
        assert_eq!(rng.draw(), 0xe220_a839_7b1d_cdaf);
        let drawn = |seed| (0..99).map(|_| Rng::new(seed).within(3, 9)).collect::<Vec<_>>();
        assert_eq!(drawn(7), drawn(7));
        assert!(drawn(7).iter().all(|n| (3..=9).contains(n)));
    }

    #[test]
    fn a_shuffle_keeps_what_it_reorders() {
        let mut items: Vec<u64> = (0..50).collect();
        Rng::new(1).shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }
}
