use crate::error::Error;
use crate::fabric::Fabric;
use model::NodeId;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is done to a word at once, whoever else does something to it by [`Fabric::atomic`],
/// [`Fabric::put_word`] or [`Fabric::get_word`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Atomic {
    /// Adds, and wraps.
    Add(u64),
    /// Keeps the bits that are set here too.
    And(u64),
    /// Sets the bits that are set here.
    Or(u64),
    /// Turns the bits that are set here.
    Xor(u64),
    /// Keeps the smaller one.
    Min(u64),
    /// Keeps the larger one.
    Max(u64),
    /// Stores.
    Swap(u64),
    /// Stores the second where the first is.
    CompareSwap(u64, u64),
}

impl Atomic {
    /// Itself as numbers, of which [`Atomic::of`] makes it.
    pub(crate) fn numbers(self) -> [u64; 3] {
        match self {
            Atomic::Add(by) => [0, by, 0],
            Atomic::And(bits) => [1, bits, 0],
            Atomic::Or(bits) => [2, bits, 0],
            Atomic::Xor(bits) => [3, bits, 0],
            Atomic::Min(other) => [4, other, 0],
            Atomic::Max(other) => [5, other, 0],
            Atomic::Swap(new) => [6, new, 0],
            Atomic::CompareSwap(old, new) => [7, old, new],
        }
    }

    /// `None` for what is none.
    pub(crate) fn of([kind, first, second]: [u64; 3]) -> Option<Atomic> {
        let all = [
            Atomic::Add,
            Atomic::And,
            Atomic::Or,
            Atomic::Xor,
            Atomic::Min,
            Atomic::Max,
            Atomic::Swap,
        ];
        match kind {
            7 => Some(Atomic::CompareSwap(first, second)),
            _ => all.get(usize::try_from(kind).ok()?).map(|atomic| atomic(first)),
        }
    }

    /// Does it, and returns what was there.
    pub(crate) fn on(self, word: &AtomicU64) -> u64 {
        const ORDER: Ordering = Ordering::AcqRel;
        match self {
            Atomic::Add(by) => word.fetch_add(by, ORDER),
            Atomic::And(bits) => word.fetch_and(bits, ORDER),
            Atomic::Or(bits) => word.fetch_or(bits, ORDER),
            Atomic::Xor(bits) => word.fetch_xor(bits, ORDER),
            Atomic::Min(other) => word.fetch_min(other, ORDER),
            Atomic::Max(other) => word.fetch_max(other, ORDER),
            Atomic::Swap(new) => word.swap(new, ORDER),
            Atomic::CompareSwap(old, new) => {
                let swapped = word.compare_exchange(old, new, ORDER, Ordering::Acquire);
                swapped.unwrap_or_else(|there| there)
            }
        }
    }
}

impl Fabric {
    /// Does `what` to the word at byte `at`, a multiple of 8, of the segment of `to`, and returns what
    /// was there before. Acquires and releases.
    ///
    /// # Errors
    /// As [`Fabric::put_word`].
    pub fn atomic(&self, to: NodeId, at: u64, what: Atomic) -> Result<u64, Error> {
        match self.word(to, at)? {
            Some(word) => Ok(what.on(word)),
            None => self.ask_atomic(to, at, what),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_does_what_it_says() {
        let cases = [
            (Atomic::Add(u64::MAX), 11),
            (Atomic::And(0b0110), 0b0100),
            (Atomic::Or(0b0011), 0b1111),
            (Atomic::Xor(0b0101), 0b1001),
            (Atomic::Min(7), 7),
            (Atomic::Max(7), 12),
            (Atomic::Swap(7), 7),
            (Atomic::CompareSwap(12, 7), 7),
            (Atomic::CompareSwap(13, 7), 12),
        ];
        for (what, becomes) in cases {
            let word = AtomicU64::new(12);
            assert_eq!((what.on(&word), word.into_inner()), (12, becomes), "{what:?}");
            assert_eq!(Atomic::of(what.numbers()), Some(what));
        }
        assert_eq!(Atomic::of([8, 0, 0]), None);
    }
}
