//! What nodes publish under names, and who waits for what.

use super::topology::NODE;
use crate::instance::Instance;
use model::{NodeId, RegionId};
use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often who waits looks whether it is interrupted.
const LOOK: Duration = Duration::from_millis(100);

/// The most that one node waits for here; of more, the oldest are forgotten.
const MOST_WAITING: usize = 1024;

/// The longest name.
const MOST_NAME: usize = 256;

/// A question of a node, or to one: which, and the number that the asker gave it.
pub(crate) type Asker = (NodeId, u64);

/// What came back for a question.
pub(crate) type Answer = Vec<u8>;

/// The names of this node, and its questions to others.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Whether nothing is published any more.
    is_closed: bool,
    published: HashMap<String, Instance>,
    /// Regions that other nodes may name, and whether they may have them written.
    open: HashMap<RegionId, bool>,
    /// Who waits for a name that is not published yet.
    waiting: HashMap<String, Vec<Asker>>,
    asked: u64,
    /// Of those questions that somebody waits for here, by the node that was asked.
    answers: HashMap<(NodeId, u64), Option<Answer>>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("published", &self.published.keys()).finish_non_exhaustive()
    }
}

impl State {
    /// Makes room for one more question of `node`.
    fn forget_oldest(&mut self, node: NodeId) {
        let of_it = self.waiting.values().flatten().filter(|asker| asker.0 == node);
        let (count, oldest) = of_it.fold((0, u64::MAX), |(n, old), a| (n + 1, old.min(a.1)));
        if count >= MOST_WAITING {
            self.waiting.retain(|_, askers| {
                askers.retain(|&asker| asker != (node, oldest));
                !askers.is_empty()
            });
        }
    }
}

/// Whether `name` may be published: letters, digits, `_` and `-`.
pub(crate) fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    !name.is_empty() && name.len() <= MOST_NAME && name.chars().all(allowed)
}

/// Whether a node may be called `name`: not as another is that has no name.
pub(crate) fn is_node_name(name: &str) -> bool {
    let rank = name.strip_prefix(NODE);
    is_name(name)
        && name.len() < MOST_NAME
        && !rank.is_some_and(|rank| rank.chars().all(|c| c.is_ascii_digit()))
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets other nodes name a region.
    pub(crate) fn open(&self, region: RegionId, is_writable: bool) {
        self.lock().open.insert(region, is_writable);
    }

    /// Something that is published and lies in a region.
    pub(crate) fn published_in(&self, region: RegionId) -> Option<Instance> {
        self.lock().published.values().find(|i| i.place().region == region).cloned()
    }

    /// Lets other nodes name a region no more.
    pub(crate) fn shut(&self, region: RegionId) {
        self.lock().open.remove(&region);
    }

    /// Gives up all that is published: an instance keeps the machine that would keep it here.
    pub(crate) fn clear(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let published = std::mem::take(&mut state.published);
        drop(state);
        // Without the lock.
        drop(published);
        self.changed.notify_all();
    }

    /// Whether other nodes may have a region read, or written.
    pub(crate) fn is_open(&self, region: RegionId, is_written: bool) -> bool {
        self.lock().open.get(&region).is_some_and(|&is_writable| is_writable || !is_written)
    }

    /// Publishes `instance`, for as long as this lives; who waited for that, or `None` where the name
    /// is taken.
    pub(crate) fn publish(&self, name: &str, instance: &Instance) -> Option<Vec<Asker>> {
        let mut state = self.lock();
        if state.published.contains_key(name) {
            return None;
        }
        if state.is_closed {
            // It is given up at once.
            return Some(Vec::new());
        }
        state.published.insert(name.to_owned(), instance.clone());
        state.open.insert(instance.place().region, instance.is_writable());
        let waiting = state.waiting.remove(name).unwrap_or_default();
        drop(state);
        self.changed.notify_all();
        Some(waiting)
    }

    /// What is published under `name`; else `asker` is told when it is.
    pub(crate) fn find(&self, name: &str, asker: Asker) -> Option<Instance> {
        let mut state = self.lock();
        let found = state.published.get(name).cloned();
        if found.is_none() {
            state.forget_oldest(asker.0);
            state.waiting.entry(name.to_owned()).or_default().push(asker);
        }
        found
    }

    /// Nobody of `node` waits for anything any more.
    pub(crate) fn forget(&self, node: NodeId) {
        self.lock().waiting.retain(|_, askers| {
            askers.retain(|asker| asker.0 != node);
            !askers.is_empty()
        });
        // Who waits for its answer.
        self.look_again();
    }

    /// What this node itself publishes under `name`, as soon as it does; `None` at `end`, or when
    /// `is_over`.
    pub(crate) fn wait_for(
        &self,
        name: &str,
        end: Option<Instant>,
        is_over: impl Fn() -> bool,
    ) -> Option<Instance> {
        let mut state = self.lock();
        loop {
            if let Some(found) = state.published.get(name) {
                return Some(found.clone());
            }
            if is_over() {
                return None;
            }
            state = self.sleep(state, end)?;
        }
    }

    /// Until `is_over`, or `end`.
    pub(crate) fn wait_until(&self, end: Option<Instant>, is_over: impl Fn() -> bool) {
        let mut state = Some(self.lock());
        while let Some(locked) = state.take().filter(|_| !is_over()) {
            state = self.sleep(locked, end);
        }
    }

    /// Has all that wait look again.
    pub(crate) fn look_again(&self) {
        self.changed.notify_all();
    }

    /// A number for a question to `node`, whose answer is kept from now on.
    pub(crate) fn ask(&self, node: NodeId) -> Asker {
        let mut state = self.lock();
        state.asked += 1;
        let asked = (node, state.asked);
        state.answers.insert(asked, None);
        asked
    }

    /// Takes the answer to a question, if somebody still waits for that, and returns whether.
    pub(crate) fn answer(&self, asked: Asker, answer: Answer) -> bool {
        let is_awaited = match self.lock().answers.get_mut(&asked) {
            Some(place) => {
                *place = Some(answer);
                true
            }
            None => false,
        };
        self.changed.notify_all();
        is_awaited
    }

    /// Waits for the answer to a question; `None` at `end`, or when `is_over`.
    pub(crate) fn wait(
        &self,
        asked: Asker,
        end: Option<Instant>,
        is_over: impl Fn() -> bool,
    ) -> Option<Answer> {
        let mut state = self.lock();
        loop {
            if let Some(answer) = state.answers.get_mut(&asked)?.take() {
                return Some(answer);
            }
            if is_over() {
                return None;
            }
            match self.sleep(state, end) {
                Some(woken) => state = woken,
                // It may have come just now.
                None => return self.lock().answers.get_mut(&asked)?.take(),
            }
        }
    }

    /// Nobody waits for the answer to a question any more.
    pub(crate) fn forget_question(&self, asked: Asker) {
        self.lock().answers.remove(&asked);
    }

    /// Until something changes, or for a while, so that an interruption is seen; `None` at `end`.
    fn sleep<'a>(
        &self,
        state: MutexGuard<'a, State>,
        end: Option<Instant>,
    ) -> Option<MutexGuard<'a, State>> {
        let left = match end {
            Some(end) => end.checked_duration_since(Instant::now())?.min(LOOK),
            None => LOOK,
        };
        let woken = self.changed.wait_timeout(state, left);
        Some(woken.unwrap_or_else(PoisonError::into_inner).0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Array, Machine};

    #[test]
    fn a_name_is_of_few_letters() {
        let longest = "a".repeat(MOST_NAME);
        assert!(["a", "weights-0_Q", &longest].into_iter().all(is_name));
        let long = "a".repeat(MOST_NAME + 1);
        assert!(!["", "a/b", "ä", "a b", &long].into_iter().any(is_name));
        assert!(["store", "node-3", "nodes", "node3a"].into_iter().all(is_node_name));
        assert!(!["node", "node0", "node17", "a/b", ""].into_iter().any(is_node_name));
    }

    #[test]
    fn who_waits_for_a_name_is_told_once_and_who_left_never() {
        let machine = Machine::builder().assume(true).lanes(1).staging(1 << 20).open().unwrap();
        let instance = machine.empty(Array::of(&[("x", 4)], "|u1").unwrap(), "sys").unwrap();
        let registry = Registry::default();
        assert!(!registry.is_open(instance.place().region, true));
        for asker in [(NodeId(1), 5), (NodeId(2), 6)] {
            assert!(registry.find("a", asker).is_none());
        }
        registry.forget(NodeId(2));
        assert_eq!(registry.publish("a", &instance), Some(vec![(NodeId(1), 5)]));
        assert_eq!(registry.publish("a", &instance), None);
        assert!(registry.find("a", (NodeId(1), 7)).is_some());
        assert!(registry.is_open(instance.place().region, true));
        assert!(registry.wait_for("b", Some(Instant::now()), || false).is_none());
    }

    #[test]
    fn an_answer_is_for_who_waits_and_of_whom_was_asked() {
        let registry = Registry::default();
        let (first, second) = (registry.ask(NodeId(1)), registry.ask(NodeId(2)));
        assert!(!registry.answer((NodeId(1), second.1), vec![9]), "of another");
        assert!(registry.answer(second, vec![2]));
        assert!(!registry.answer((NodeId(2), 99), vec![9]));
        assert_eq!(registry.wait(second, None, || false), Some(vec![2]));
        assert_eq!(registry.wait(first, None, || true), None, "it is over");
        registry.forget_question(first);
        assert!(!registry.answer(first, vec![1]));
        assert_eq!(registry.wait(first, None, || false), None, "nobody waits any more");
    }

    #[test]
    fn of_many_questions_of_a_node_the_oldest_are_forgotten() {
        let registry = Registry::default();
        let many = MOST_WAITING as u64 + 5;
        for serial in 0..many {
            assert!(registry.find(&format!("n{}", serial % 7), (NodeId(1), serial)).is_none());
        }
        assert!(registry.find("n0", (NodeId(2), 0)).is_none());
        let waiting: Vec<u64> =
            registry.lock().waiting.values().flatten().map(|asker| asker.1).collect();
        assert_eq!(waiting.len(), MOST_WAITING + 1);
        assert!((1..5).all(|serial| !waiting.contains(&serial)), "those were the oldest");
    }
}
