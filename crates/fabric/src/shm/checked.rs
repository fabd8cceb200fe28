//! Rings and bells under a model checker: their own files, compiled against shuttle, so that what is
//! shipped is what is checked. Shuttle tries orders of steps; that memory may be weaker it doesn't
//! know.

#[path = "bell.rs"]
#[allow(clippy::duplicate_mod, unreachable_pub, dead_code)]
mod bell;
#[path = "ring.rs"]
#[allow(clippy::duplicate_mod, unreachable_pub, dead_code)]
mod ring;
#[path = "../turn.rs"]
#[allow(clippy::duplicate_mod, unreachable_pub, dead_code)]
mod turn;

mod sync {
    pub(crate) use shuttle::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}

use crate::message::{Copied, Message, Payload};
use bell::Futex;
use ring::{Found, RING_WORDS, Reader, Refused, Words, Writer};
use shuttle::sync::atomic::AtomicBool;
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;
use std::sync::Arc;
use std::time::Duration;
use sync::{AtomicU32, AtomicU64, Ordering};
use turn::Turn;

/// As the system's.
#[derive(Default)]
struct Bell {
    word: AtomicU32,
    /// Held from looking at the word until asleep, and by who wakes.
    lock: Mutex<()>,
    rung: Condvar,
}

impl Futex for Bell {
    fn word(&self) -> &AtomicU32 {
        &self.word
    }

    fn wait(&self, value: u32, _: Option<Duration>) {
        let lock = self.lock.lock().unwrap();
        if self.word.load(Ordering::SeqCst) == value {
            drop(self.rung.wait(lock).unwrap());
        }
    }

    fn wake(&self) {
        drop(self.lock.lock().unwrap());
        self.rung.notify_all();
    }
}

/// Two threads sleep on one bell, each for something of its own; one that sleeps through hangs.
fn two_sleepers() {
    let bell: Arc<Bell> = Arc::default();
    let flags: Arc<[AtomicBool; 2]> = Arc::default();
    let sleepers = [0, 1].map(|i| {
        let (bell, flags) = (Arc::clone(&bell), Arc::clone(&flags));
        thread::spawn(move || {
            while !flags[i].load(Ordering::SeqCst) {
                bell::sleep(&*bell, None, || flags[i].load(Ordering::SeqCst));
            }
        })
    });
    let wakers = [0, 1].map(|i| {
        let (bell, flags) = (Arc::clone(&bell), Arc::clone(&flags));
        thread::spawn(move || {
            flags[i].store(true, Ordering::SeqCst);
            bell::wake(&*bell);
        })
    });
    sleepers.into_iter().chain(wakers).for_each(|thread| thread.join().unwrap());
}

/// A network that wakes by nudges, each of which one takes, who then rings all that are about to sleep.
#[derive(Default)]
struct Network {
    state: Mutex<State>,
    rung: Condvar,
}

#[derive(Default)]
struct State {
    nudges: u32,
    /// By sleeper: whether its bell hangs, and was rung.
    bells: [Option<bool>; 2],
}

impl Network {
    fn ring(&self, state: &mut State) {
        state.bells.iter_mut().flatten().for_each(|is_rung| *is_rung = true);
        self.rung.notify_all();
    }

    /// As conduits do who sleep on descriptors, and then look at what has come.
    fn sleep(&self, who: usize, is_over: impl FnOnce() -> bool) {
        self.state.lock().unwrap().bells[who] = Some(false);
        let is_over = is_over();
        let mut state = self.state.lock().unwrap();
        while !is_over && state.nudges == 0 && state.bells[who] == Some(false) {
            state = self.rung.wait(state).unwrap();
        }
        state.bells[who] = None;
        if state.nudges > 0 {
            state.nudges -= 1;
            self.ring(&mut state);
        }
    }
}

/// As neighbours do: a word says that somebody sleeps, but on the network.
fn two_neighbours() {
    let network: Arc<Network> = Arc::default();
    let word: Arc<AtomicU32> = Arc::default();
    let flags: Arc<[AtomicBool; 2]> = Arc::default();
    let sleepers = [0, 1].map(|i| {
        let (network, word, flags) = (Arc::clone(&network), Arc::clone(&word), Arc::clone(&flags));
        thread::spawn(move || {
            while !flags[i].load(Ordering::SeqCst) {
                network.sleep(i, || {
                    bell::announce(&word);
                    flags[i].load(Ordering::SeqCst)
                });
            }
        })
    });
    let writers = [0, 1].map(|i| {
        let (network, word, flags) = (Arc::clone(&network), Arc::clone(&word), Arc::clone(&flags));
        thread::spawn(move || {
            flags[i].store(true, Ordering::SeqCst);
            if bell::claim(&word) {
                network.state.lock().unwrap().nudges += 1;
                network.rung.notify_all();
            }
        })
    });
    sleepers.into_iter().chain(writers).for_each(|thread| thread.join().unwrap());
}

/// A thread looks once whether something has come; another sleeps until that was taken, by either.
fn one_that_looks_once() {
    let network: Arc<Network> = Arc::default();
    let (word, turn): (Arc<AtomicU32>, Arc<Turn>) = Default::default();
    // Whether it has come, and was taken.
    let flags: Arc<[AtomicBool; 2]> = Arc::default();
    let threads = [false, true].map(|sleeps| {
        let (network, word) = (Arc::clone(&network), Arc::clone(&word));
        let (turn, flags) = (Arc::clone(&turn), Arc::clone(&flags));
        thread::spawn(move || {
            let [has_come, was_taken] = &*flags;
            let has_come = || has_come.load(Ordering::SeqCst);
            let is_over = || was_taken.load(Ordering::SeqCst);
            let ring = || network.ring(&mut network.state.lock().unwrap());
            loop {
                if let Some(_taken) = turn.take(ring)
                    && has_come()
                {
                    was_taken.store(true, Ordering::SeqCst);
                    ring();
                }
                if !sleeps || is_over() {
                    return;
                }
                let is_missed = turn.is_missed();
                network.sleep(0, || {
                    bell::announce(&word);
                    is_over() || if is_missed { !turn.is_missed() } else { has_come() }
                });
            }
        })
    });
    flags[0].store(true, Ordering::SeqCst);
    if bell::claim(&word) {
        network.state.lock().unwrap().nudges += 1;
        network.rung.notify_all();
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn nobody_sleeps_through_what_another_has_missed() {
    shuttle::check_random(one_that_looks_once, 2000);
    shuttle::check_pct(one_that_looks_once, 2000, 4);
}

#[test]
fn nobody_sleeps_through_a_nudge() {
    shuttle::check_random(two_neighbours, 2000);
    shuttle::check_pct(two_neighbours, 2000, 4);
}

#[test]
fn nobody_sleeps_through_what_wakes_another() {
    shuttle::check_random(two_sleepers, 2000);
    shuttle::check_pct(two_sleepers, 2000, 4);
}

/// A lost wake-up leaves both asleep for ever, which shuttle reports as a deadlock.
fn writer_and_reader() {
    const COUNT: u32 = 24;
    let words: Arc<Vec<_>> = Arc::new((0..RING_WORDS).map(|_| AtomicU64::new(0)).collect());
    let bells: Arc<[Bell; 2]> = Arc::default();
    let (their_words, their_bells) = (Arc::clone(&words), Arc::clone(&bells));
    let writing = thread::spawn(move || {
        let (ring, mut writer) = (Words(&their_words), Writer::default());
        let bytes = [7; 4096];
        for i in 0..COUNT {
            let message =
                Message { handler: 1, args: &[i], payload: Payload::Bytes(&bytes), rest: &[] };
            let mut push = || writer.push(ring, &message);
            let mut pushed = push();
            while pushed == Err(Refused::Full) {
                bell::sleep(&their_bells[0], None, || {
                    pushed = push();
                    pushed.is_ok()
                });
            }
            assert_eq!(pushed, Ok(()));
            bell::wake(&their_bells[1]);
        }
    });
    let (ring, mut reader, mut copied) = (Words(&words), Reader::default(), Copied::new());
    let mut next = 0;
    while next < COUNT {
        match reader.pop(ring, &mut copied) {
            Found::Nothing => _ = bell::sleep(&bells[1], None, || reader.is_ready(ring)),
            Found::Broken => panic!("broken at {next}"),
            Found::Message { wakes } => {
                copied.with(|message| assert_eq!(message.args, [next]));
                next += 1;
                if wakes {
                    bell::wake(&bells[0]);
                }
            }
        }
    }
    writing.join().unwrap();
}

#[test]
fn whoever_waits_is_woken() {
    shuttle::check_random(writer_and_reader, 40);
    shuttle::check_pct(writer_and_reader, 20, 3);
}
