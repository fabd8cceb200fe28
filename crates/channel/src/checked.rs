//! The queues and the table of regions under a model checker: their own files, compiled against
//! shuttle, so that what is shipped is what is checked.

#[path = "queue.rs"]
#[allow(clippy::duplicate_mod, unreachable_pub, dead_code, missing_docs)]
mod queue;

#[path = "region.rs"]
#[allow(clippy::duplicate_mod, unreachable_pub, dead_code, missing_docs)]
mod region;

mod sync {
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
    use std::sync::PoisonError;

    /// A bell that the model checker can see.
    #[derive(Debug, Default)]
    pub(crate) struct Bell {
        readable: Mutex<bool>,
        rung: Condvar,
    }

    impl Bell {
        pub(crate) fn ring(&self) {
            *self.readable.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.rung.notify_all();
        }

        pub(crate) fn clear(&self) {
            *self.readable.lock().unwrap_or_else(PoisonError::into_inner) = false;
        }

        pub(crate) fn wait(&self) {
            let mut readable = self.readable.lock().unwrap_or_else(PoisonError::into_inner);
            while !*readable {
                readable = self.rung.wait(readable).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

use model::{MemoryId, NodeId};
use queue::{DoneQueue, TaskQueue};
use region::{Region, Regions};
use shuttle::thread;
use std::sync::Arc;
use sync::Bell;

/// Two producers, some lanes, one consumer; a lost wake-up leaves the consumer asleep for
/// ever, which shuttle reports as a deadlock.
fn lanes_and_a_driver(lanes: usize) {
    let tasks = Arc::new(TaskQueue::new());
    let done = Arc::new(DoneQueue::new(Arc::new(Bell::default())));
    let lanes: Vec<_> = (0..lanes)
        .map(|_| {
            let (tasks, done) = (Arc::clone(&tasks), Arc::clone(&done));
            thread::spawn(move || {
                while let Some(task) = tasks.take() {
                    done.push(task);
                }
            })
        })
        .collect();
    let other = Arc::clone(&tasks);
    let producer = thread::spawn(move || (0..2).for_each(|n| other.push(n)));
    (2..4).for_each(|n| tasks.push(n));
    let mut seen = Vec::new();
    while seen.len() < 4 {
        done.bell().wait();
        done.bell().clear();
        done.take(&mut seen);
    }
    producer.join().unwrap();
    tasks.close();
    lanes.into_iter().for_each(|lane| lane.join().unwrap());
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2, 3]);
}

#[test]
fn no_wake_up_is_lost() {
    for lanes in [1, 2] {
        shuttle::check_random(move || lanes_and_a_driver(lanes), 1500);
        shuttle::check_pct(move || lanes_and_a_driver(lanes), 700, 3);
    }
}

/// One lane takes in the order of adding.
#[test]
fn tasks_start_in_order() {
    shuttle::check_random(
        || {
            let tasks = Arc::new(TaskQueue::new());
            let theirs = Arc::clone(&tasks);
            let lane = thread::spawn(move || {
                let mut taken = Vec::new();
                while let Some(n) = theirs.take() {
                    taken.push(n);
                }
                taken
            });
            (0..5).for_each(|n| tasks.push(n));
            tasks.close();
            assert_eq!(lane.join().unwrap(), [0, 1, 2, 3, 4]);
        },
        500,
    );
}

/// Two threads insert, look up and revoke; an id finds its own region or none, whatever happens
/// between.
fn two_users_of_a_table() {
    const MEMORY: MemoryId = MemoryId { node: NodeId(0), index: 0 };
    let regions = Arc::new(Regions::new());
    let user = |len_bytes: u64| {
        let regions = Arc::clone(&regions);
        thread::spawn(move || {
            for _ in 0..2 {
                let id = regions.insert(Region::device(MEMORY, len_bytes, Arc::new(())));
                let held = regions.get(id).expect("nobody else revokes it");
                assert_eq!(held.len_bytes(), len_bytes);
                assert_eq!(regions.revoke(id).expect("still there").len_bytes(), len_bytes);
                assert!(regions.get(id).is_none() && regions.revoke(id).is_none());
            }
        })
    };
    let users = [user(1), user(2)];
    users.into_iter().for_each(|user| user.join().unwrap());
}

#[test]
fn an_id_finds_its_own_region_or_none() {
    shuttle::check_random(two_users_of_a_table, 1000);
}
