//! The virtual clock: what happens next, and when.

use model::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Events in the order of their time; those of one instant in the order in which they were added.
///
/// Time never runs backwards: an event added for the past happens now.
#[derive(Debug)]
pub(crate) struct Agenda<E> {
    now: Time,
    added: u64,
    heap: BinaryHeap<Reverse<Entry<E>>>,
}

#[derive(Debug)]
struct Entry<E> {
    at: Time,
    nth: u64,
    event: E,
}

impl<E> Agenda<E> {
    pub(crate) fn new() -> Self {
        Agenda { now: Time(0), added: 0, heap: BinaryHeap::new() }
    }

    /// The instant of the event taken last.
    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// Plans `event` for `at`, or for now if that is later.
    pub(crate) fn add(&mut self, at: Time, event: E) {
        let entry = Entry { at: at.max(self.now), nth: self.added, event };
        self.added += 1;
        self.heap.push(Reverse(entry));
    }

    /// When the next event happens.
    pub(crate) fn next_at(&self) -> Option<Time> {
        self.heap.peek().map(|entry| entry.0.at)
    }

    /// How many events are planned.
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Moves the clock to the next event and takes it.
    pub(crate) fn next(&mut self) -> Option<E> {
        let Reverse(entry) = self.heap.pop()?;
        self.now = entry.at;
        Some(entry.event)
    }
}

impl<E> Entry<E> {
    fn key(&self) -> (Time, u64) {
        (self.at, self.nth)
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_then_by_age() {
        let mut agenda = Agenda::new();
        for (at, name) in [(5, 'c'), (1, 'a'), (5, 'd'), (2, 'b')] {
            agenda.add(Time(at), name);
        }
        assert_eq!(agenda.next_at(), Some(Time(1)));
        let order: String = std::iter::from_fn(|| agenda.next()).collect();
        assert_eq!((order.as_str(), agenda.now()), ("abcd", Time(5)));
    }

    #[test]
    fn the_past_happens_now() {
        let mut agenda = Agenda::new();
        agenda.add(Time(9), 'a');
        agenda.next();
        agenda.add(Time(3), 'b');
        assert_eq!((agenda.next(), agenda.now()), (Some('b'), Time(9)));
    }
}
