//! The ring under a model checker: its own file, compiled against shuttle, so that what is shipped
//! is what is checked. Shuttle tries orders of steps; that memory may be weaker it doesn't know.

#[path = "ring.rs"]
#[allow(clippy::duplicate_mod, unreachable_pub, dead_code)]
mod ring;

mod sync {
    pub(crate) use shuttle::sync::atomic::{AtomicU64, Ordering};
}

use crate::message::{Copied, Message, Payload};
use ring::{Found, RING_WORDS, Reader, Refused, Words, Writer};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;
use std::sync::Arc;
use sync::{AtomicU64, Ordering};

/// What a process sleeps on: as the system's does, but for its name.
#[derive(Default)]
struct Bell {
    word: AtomicU64,
    lock: Mutex<()>,
    rung: Condvar,
}

impl Bell {
    fn wake(&self) {
        if self.word.load(Ordering::SeqCst) != 0 && self.word.swap(0, Ordering::SeqCst) != 0 {
            drop(self.lock.lock().unwrap());
            self.rung.notify_all();
        }
    }

    /// Sleeps until it is rung, unless `is_over` says so after it was set.
    fn sleep(&self, mut is_over: impl FnMut() -> bool) {
        self.word.store(1, Ordering::SeqCst);
        if is_over() {
            return;
        }
        let mut lock = self.lock.lock().unwrap();
        while self.word.load(Ordering::SeqCst) != 0 {
            lock = self.rung.wait(lock).unwrap();
        }
    }
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
            let message = Message { handler: 1, args: &[i], payload: Payload::Bytes(&bytes) };
            let mut push = || writer.push(ring, &message);
            let mut pushed = push();
            while pushed == Err(Refused::Full) {
                their_bells[0].sleep(|| {
                    pushed = push();
                    pushed.is_ok()
                });
            }
            assert_eq!(pushed, Ok(()));
            their_bells[1].wake();
        }
    });
    let (ring, mut reader, mut copied) = (Words(&words), Reader::default(), Copied::new());
    let mut next = 0;
    while next < COUNT {
        match reader.pop(ring, &mut copied) {
            Found::Nothing => bells[1].sleep(|| reader.is_ready(ring)),
            Found::Broken => panic!("broken at {next}"),
            Found::Message { wakes } => {
                copied.with(|message| assert_eq!(message.args, [next]));
                next += 1;
                if wakes {
                    bells[0].wake();
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
