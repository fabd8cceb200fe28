//! What a run tells those who follow it.

use model::{ChannelId, MemoryId, Time};

/// One instance of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instance {
    /// Which copy of the case.
    pub copy: usize,
    /// Which of its instances, from 0.
    pub nth: u32,
}

/// Something that happened in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Note {
    /// A channel has served a request; it serves one at a time. What it waited for before, its
    /// latency included, is no part of it.
    Served {
        /// For whom.
        instance: Instance,
        /// The hop of the instance's path, from 0; of what was split, of that part's path.
        hop: usize,
        /// The channel.
        channel: ChannelId,
        /// Payload.
        bytes: u64,
        /// When the service began.
        from: Time,
        /// When it ended.
        to: Time,
    },
    /// An instance has ended.
    Copied {
        /// Which.
        instance: Instance,
        /// When its copy was launched.
        from: Time,
        /// When it ended.
        to: Time,
    },
    /// The staging that is given out of a memory has changed.
    Staged {
        /// The memory.
        memory: MemoryId,
        /// How much there is now.
        bytes: u64,
        /// Since when.
        at: Time,
    },
}

/// Who follows a run. A closure without arguments only says whether to go on.
pub trait Watch {
    /// Asked for each copy that is planned, and every few thousand steps, whether to go on; so many
    /// instances of the case have ended.
    fn go_on(&mut self, ended: u64) -> bool;

    /// Whether to keep and tell notes: asked once, before the run.
    fn takes_notes(&self) -> bool {
        false
    }

    /// Told in the order in which things ended.
    fn note(&mut self, _note: &Note) {}
}

impl<F: FnMut() -> bool> Watch for F {
    fn go_on(&mut self, _ended: u64) -> bool {
        self()
    }
}
