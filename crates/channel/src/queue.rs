//! The two queues between a channel and the threads that do its work.
//!
//! **Hazard.** A wake-up is lost when work arrives between the moment a thread finds nothing to
//! do and the moment it sleeps. **Guarantee.** Whoever sleeps said so under the lock, after a last
//! look, and whoever adds looks for sleepers under the same lock: a task added is taken, a
//! completion added is seen. A thread that is awake is never woken. **Structure.** [`TaskQueue`]
//! goes down: many producers, many lanes that sleep on a condition. [`DoneQueue`] comes up: many
//! producers, one consumer that sleeps on a [`Bell`].
//!
//! Everything synchronises through `super::sync`, so that a test can put a model checker there.

use super::sync::{Bell, Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

/// Tasks in the order in which they are to start. Its user bounds it: a channel never adds more
/// than the jobs that it holds need.
#[derive(Debug)]
pub struct TaskQueue<T> {
    state: Mutex<State<T>>,
    added: Condvar,
}

#[derive(Debug)]
struct State<T> {
    tasks: VecDeque<T>,
    sleepers: usize,
    closed: bool,
}

impl<T> Default for TaskQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> TaskQueue<T> {
    /// An empty, open queue.
    #[must_use]
    pub fn new() -> Self {
        let state = State { tasks: VecDeque::new(), sleepers: 0, closed: false };
        TaskQueue { state: Mutex::new(state), added: Condvar::new() }
    }

    /// Adds `task` behind all others, and wakes a sleeper if there is one.
    pub fn push(&self, task: T) {
        let mut state = self.lock();
        state.tasks.push_back(task);
        let asleep = state.sleepers > 0;
        drop(state);
        if asleep {
            self.added.notify_one();
        }
    }

    /// Takes the first task; sleeps while there is none. `None` once the queue is closed and
    /// empty.
    pub fn take(&self) -> Option<T> {
        let mut state = self.lock();
        loop {
            if let Some(task) = state.tasks.pop_front() {
                return Some(task);
            }
            if state.closed {
                return None;
            }
            state.sleepers += 1;
            state = self.added.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.sleepers -= 1;
        }
    }

    /// Lets [`TaskQueue::take`] return `None` when the tasks there are have been taken.
    pub fn close(&self) {
        self.lock().closed = true;
        self.added.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // No method leaves a half-changed state behind when it panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What has ended, for one consumer, which clears the bell and then takes: whatever is added after
/// its look rings again. Several queues may share a bell, if their consumer clears it once and then
/// looks into all of them.
#[derive(Debug)]
pub struct DoneQueue<T> {
    bell: Arc<Bell>,
    items: Mutex<Vec<T>>,
}

impl<T> DoneQueue<T> {
    /// An empty queue that rings `bell`.
    #[must_use]
    pub fn new(bell: Arc<Bell>) -> Self {
        DoneQueue { bell, items: Mutex::new(Vec::new()) }
    }

    /// Adds `item`, and rings the bell if the queue was empty.
    pub fn push(&self, item: T) {
        let mut items = self.lock();
        if items.is_empty() {
            self.bell.ring();
        }
        items.push(item);
    }

    /// Moves all items to the end of `to`. The bell is to be cleared before.
    pub fn take(&self, to: &mut Vec<T>) {
        to.append(&mut self.lock());
    }

    /// The bell.
    #[must_use]
    pub fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
