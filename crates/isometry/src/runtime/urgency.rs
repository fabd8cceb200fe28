//! How urgent the copies are that run, for those who have no time to take the lock.

use model::Priority;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};

/// Below every priority.
const NOBODY: i64 = i64::MIN;

/// The greatest priority of what is pending. It is a hint: a copy that is decided on it while
/// another is being submitted may run before that one, as if it had been submitted first.
#[derive(Debug)]
pub(crate) struct Urgency {
    most: AtomicI64,
}

impl Urgency {
    pub(crate) fn new() -> Self {
        Urgency { most: AtomicI64::new(NOBODY) }
    }

    /// Whether something more urgent than `priority` is pending.
    pub(crate) fn exceeds(&self, priority: Priority) -> bool {
        self.most.load(Ordering::Relaxed) > i64::from(priority.0)
    }

    fn set(&self, most: Option<Priority>) {
        self.most.store(most.map_or(NOBODY, |p| i64::from(p.0)), Ordering::Relaxed);
    }
}

/// Counts what is pending at each priority; lives under the lock.
#[derive(Debug, Default)]
pub(crate) struct Census {
    counts: BTreeMap<Priority, usize>,
}

impl Census {
    pub(crate) fn add(&mut self, priority: Priority, urgency: &Urgency) {
        *self.counts.entry(priority).or_default() += 1;
        self.publish(urgency);
    }

    pub(crate) fn remove(&mut self, priority: Priority, urgency: &Urgency) {
        if let Some(count) = self.counts.get_mut(&priority) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&priority);
            }
        }
        self.publish(urgency);
    }

    fn publish(&self, urgency: &Urgency) {
        urgency.set(self.counts.last_key_value().map(|(priority, _)| *priority));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_urgent_counts_until_it_has_gone() {
        let (urgency, mut census) = (Urgency::new(), Census::default());
        assert!(!urgency.exceeds(Priority(i32::MIN)));
        for priority in [3, 7, 7] {
            census.add(Priority(priority), &urgency);
        }
        assert!(urgency.exceeds(Priority(6)) && !urgency.exceeds(Priority(7)));
        census.remove(Priority(7), &urgency);
        assert!(urgency.exceeds(Priority(6)));
        census.remove(Priority(7), &urgency);
        assert!(urgency.exceeds(Priority(2)) && !urgency.exceeds(Priority(3)));
        census.remove(Priority(3), &urgency);
        assert!(!urgency.exceeds(Priority(i32::MIN)));
    }
}
