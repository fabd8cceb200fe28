//! Who may go on, where there is only so much of something: room in a memory, threads of a node.
//!
//! **Hazard.** Those that hold one thing and wait for another deadlock; those that need much are
//! passed by those that need little, for ever. **Guarantee.** Who asks gets all that it needs at
//! once or nothing yet; the most urgent first, then the oldest, among those that wait for the same
//! thing; whoever is first for a thing claims it against all behind. **Structure.** A [`Shelf`] for
//! each thing, with the turns of those that wait for it; only who is first at all of its shelves,
//! and finds enough on each, goes on. It is the rule by which the engine gives out staging.

use model::Priority;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The place in a queue: the most urgent first, then the oldest.
pub(crate) type Turn = (Reverse<Priority>, u64);

/// How much of which shelf: at least one, and none twice.
pub(crate) type Needs = Rc<[(usize, u64)]>;

#[derive(Debug)]
struct Shelf {
    left: u64,
    waiting: BTreeSet<Turn>,
}

#[derive(Debug)]
struct Waiter {
    task: usize,
    needs: Needs,
}

/// The shelves, and those that wait.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    shelves: Vec<Shelf>,
    queue: BTreeMap<Turn, Waiter>,
    /// Shelves whose first may go on.
    changed: Vec<usize>,
}

impl Gate {
    /// A shelf with this much on it. Returns its number.
    pub(crate) fn add(&mut self, amount: u64) -> usize {
        self.shelves.push(Shelf { left: amount, waiting: BTreeSet::new() });
        self.shelves.len() - 1
    }

    /// `task` waits for `needs`, none of which is more than its shelf has when it is full.
    pub(crate) fn ask(&mut self, turn: Turn, task: usize, needs: &Needs) {
        for &(shelf, _) in needs.iter() {
            self.shelves[shelf].waiting.insert(turn);
            self.changed.push(shelf);
        }
        self.queue.insert(turn, Waiter { task, needs: Rc::clone(needs) });
    }

    /// Gives something back.
    pub(crate) fn put_back(&mut self, shelf: usize, amount: u64) {
        self.shelves[shelf].left += amount;
        self.changed.push(shelf);
    }

    /// The next that has what it asked for.
    pub(crate) fn poll(&mut self) -> Option<usize> {
        while let Some(&shelf) = self.changed.last() {
            let first = self.shelves[shelf].waiting.first().copied();
            if let Some(turn) = first.filter(|turn| self.may_go(*turn)) {
                return Some(self.take(turn));
            }
            self.changed.pop();
        }
        None
    }

    fn may_go(&self, turn: Turn) -> bool {
        let fits = |&(shelf, amount): &(usize, u64)| {
            let shelf = &self.shelves[shelf];
            shelf.waiting.first() == Some(&turn) && shelf.left >= amount
        };
        self.queue[&turn].needs.iter().all(fits)
    }

    fn take(&mut self, turn: Turn) -> usize {
        let Waiter { task, needs } = self.queue.remove(&turn).expect("who may go waits");
        for &(shelf, amount) in needs.iter() {
            self.shelves[shelf].left -= amount;
            self.shelves[shelf].waiting.remove(&turn);
            self.changed.push(shelf);
        }
        task
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(amounts: &[u64]) -> Gate {
        let mut gate = Gate::default();
        amounts.iter().for_each(|&amount| {
            gate.add(amount);
        });
        gate
    }

    fn ask(gate: &mut Gate, task: usize, priority: i32, needs: &[(usize, u64)]) {
        gate.ask((Reverse(Priority(priority)), task as u64), task, &needs.into());
    }

    fn all(gate: &mut Gate) -> Vec<usize> {
        let mut all: Vec<usize> = std::iter::from_fn(|| gate.poll()).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn the_most_urgent_goes_first_then_the_oldest() {
        let mut gate = gate(&[1]);
        for (task, priority) in [(0, 0), (1, 0), (2, 5)] {
            ask(&mut gate, task, priority, &[(0, 1)]);
        }
        let mut order = Vec::new();
        for _ in 0..3 {
            order.extend(gate.poll());
            assert_eq!(gate.poll(), None);
            gate.put_back(0, 1);
        }
        assert_eq!(order, [2, 0, 1]);
    }

    #[test]
    fn who_is_first_claims_what_it_waits_for() {
        let mut gate = gate(&[4, 4]);
        ask(&mut gate, 0, 0, &[(0, 3)]);
        assert_eq!(all(&mut gate), [0]);
        ask(&mut gate, 1, 0, &[(0, 2), (1, 1)]);
        ask(&mut gate, 2, 0, &[(0, 1)]);
        ask(&mut gate, 3, 0, &[(1, 1)]);
        // Both would fit, and would keep 1 waiting.
        assert!(all(&mut gate).is_empty());
        gate.put_back(0, 3);
        assert_eq!(all(&mut gate), [1, 2, 3]);
    }

    #[test]
    fn other_shelves_are_not_held_up() {
        let mut gate = gate(&[1, 1]);
        ask(&mut gate, 0, 0, &[(0, 1)]);
        assert_eq!(all(&mut gate), [0]);
        ask(&mut gate, 1, 9, &[(0, 1)]);
        ask(&mut gate, 2, 0, &[(1, 1)]);
        assert_eq!(all(&mut gate), [2]);
    }
}
