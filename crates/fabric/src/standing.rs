//! Whether a peer is lost, as threads tell each other.

use crate::conduit::Lost;
use std::sync::atomic::{AtomicU8, Ordering};

const PRESENT: u8 = 0;
const DIED: u8 = 1;
const LEFT: u8 = 2;
const BROKEN: u8 = 3;

/// A peer is there until it is lost, for one reason that stays.
#[derive(Debug, Default)]
pub(crate) struct Standing(AtomicU8);

impl Standing {
    /// Why it is lost, if it is.
    #[inline]
    pub(crate) fn lost(&self) -> Option<Lost> {
        match self.0.load(Ordering::Acquire) {
            PRESENT => None,
            DIED => Some(Lost::Died),
            LEFT => Some(Lost::Left),
            _ => Some(Lost::Broken),
        }
    }

    /// Returns whether it was there until now.
    pub(crate) fn lose(&self, why: Lost) -> bool {
        let state = match why {
            Lost::Died => DIED,
            Lost::Left => LEFT,
            Lost::Broken => BROKEN,
        };
        self.0.compare_exchange(PRESENT, state, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}
