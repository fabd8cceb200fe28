//! What is known of ranks, some of which come later.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// A place for each rank that there may be, filled once, by any thread.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    places: Box<[OnceLock<T>]>,
    /// One more than the highest that is filled.
    size: AtomicU32,
}

impl<T> Slots<T> {
    pub(crate) fn new(capacity: u32) -> Slots<T> {
        let places = (0..capacity).map(|_| OnceLock::new()).collect();
        Slots { places, size: AtomicU32::new(0) }
    }

    /// How many places there are.
    pub(crate) fn capacity(&self) -> u32 {
        self.places.len() as u32
    }

    /// Returns whether the place was there and free.
    pub(crate) fn fill(&self, rank: u32, value: T) -> bool {
        let is_new = self.places.get(rank as usize).is_some_and(|place| place.set(value).is_ok());
        if is_new {
            self.size.fetch_max(rank + 1, Ordering::AcqRel);
        }
        is_new
    }

    #[inline]
    pub(crate) fn get(&self, rank: usize) -> Option<&T> {
        self.places.get(rank)?.get()
    }

    /// One more than the highest rank that has ever come.
    pub(crate) fn size(&self) -> u32 {
        self.size.load(Ordering::Acquire)
    }

    /// Those that have come, by rank.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        let come = self.places.iter().take(self.size() as usize).enumerate();
        come.filter_map(|(rank, place)| Some((rank, place.get()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_filled_once_and_may_stay_free() {
        let slots = Slots::new(4);
        assert_eq!((slots.size(), slots.get(0)), (0, None));
        assert!(slots.fill(0, 'a') && slots.fill(2, 'c'));
        assert!(!slots.fill(2, 'd') && !slots.fill(4, 'e'));
        assert_eq!((slots.size(), slots.get(1), slots.get(2)), (3, None, Some(&'c')));
        assert_eq!(slots.get(4), None);
        assert_eq!(slots.iter().collect::<Vec<_>>(), [(0, &'a'), (2, &'c')]);
    }
}
