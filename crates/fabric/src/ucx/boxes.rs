//! What of a peer's messages waits here, and how many more it may send.

use std::collections::{BTreeMap, VecDeque};

/// The messages of each sender that a queue holds, and how many it takes before it says so.
pub(super) const CREDITS: usize = 256;
pub(super) const TOLD: usize = CREDITS / 4;

#[derive(Debug)]
pub(super) struct Outbox {
    pub(super) credits: usize,
    /// The number of the next message.
    pub(super) next: u64,
}

impl Default for Outbox {
    fn default() -> Self {
        Outbox { credits: CREDITS, next: 0 }
    }
}

#[derive(Debug)]
pub(super) struct Inbox {
    /// In the order in which they are to be taken.
    pub(super) ready: VecDeque<(usize, Vec<u8>)>,
    /// By sender, the number of the next message, and how many were taken that it was told of, and was
    /// not.
    next: Vec<u64>,
    told: Vec<u64>,
    untold: Vec<usize>,
    /// What came before its turn, by sender and number.
    early: BTreeMap<(usize, u64), Vec<u8>>,
}

impl Inbox {
    pub(super) fn new(size: usize) -> Inbox {
        let (ready, early) = (VecDeque::new(), BTreeMap::new());
        Inbox { ready, next: vec![0; size], told: vec![0; size], untold: vec![0; size], early }
    }

    /// Takes a message with its number; `None` where no rank sends that, or has no credit for it.
    pub(super) fn arrive(&mut self, from: usize, number: u64, frame: &[u8]) -> Option<()> {
        let next = &mut self.next[from];
        // Farewell needs no credit.
        let is_due = (*next..=self.told[from] + CREDITS as u64).contains(&number);
        if !is_due || self.early.contains_key(&(from, number)) {
            return None;
        }
        self.early.insert((from, number), frame.to_vec());
        while let Some(frame) = self.early.remove(&(from, *next)) {
            *next += 1;
            self.ready.push_back((from, frame));
        }
        Some(())
    }

    /// Gives out the next message, and how many of that sender's are to be told of now.
    pub(super) fn take(&mut self, own: usize) -> Option<(usize, Vec<u8>, usize)> {
        let (from, frame) = self.ready.pop_front()?;
        self.untold[from] += 1;
        let is_told = from == own || self.untold[from] >= TOLD;
        let told = if is_told { std::mem::take(&mut self.untold[from]) } else { 0 };
        self.told[from] += told as u64;
        Some((from, frame, told))
    }
}
