//! A queue of messages from one process to another, in memory that both map.
//!
//! **Hazard.** The other process may die between any two stores, or store anything at any time.
//! **Guarantee.** A message is there whole or not at all; the reader copies it out before it looks at
//! it, and a first word that no message starts with ends the queue. **Structure.** The ring is lines
//! of eight words. A message starts a line, and its first word is stored last: so a short one costs
//! the transfer of one line, and the reader asks nothing else. Before, the writer has cleared the word
//! in which the next message will start, long before where there is room: a line that the reader had
//! last is as long in coming as a message. The reader stores nothing but, now and then, how far it has
//! come, and that it has heard who waits for room. A message doesn't go round the end: a word there says to go
//! on at the start.

use super::sync::{AtomicU64, Ordering};
use crate::message::{Copied, Head, MOST_BYTES, MOST_WORDS, Message};

/// The words of a line.
pub(crate) const LINE_WORDS: usize = 8;

/// The lines of a ring.
pub(crate) const LINES: usize = 1024;

/// The words of a ring: a line of what the reader says, then the lines of messages.
pub(crate) const RING_WORDS: usize = (1 + LINES) * LINE_WORDS;

/// The reader says how far it has come when it is so many lines further.
const TOLD_LINES: u64 = LINES as u64 / 4;

/// The first word of a line that is left out.
const SKIP: u64 = 0xFF;

/// How many lines are cleared ahead of messages.
const AHEAD_LINES: u64 = 16;

// The reader may be a quarter behind in what it says, and a message that has to skip takes its room
// twice.
const _: () = assert!(3 * MOST_WORDS.div_ceil(LINE_WORDS) < LINES - LINES / 4);

/// The words of a ring, on either side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Words<'a>(pub(crate) &'a [AtomicU64]);

impl<'a> Words<'a> {
    /// How many lines the reader is done with.
    fn done(self) -> &'a AtomicU64 {
        &self.0[0]
    }

    /// Whether the writer waits for room, which it says, and the reader takes back.
    fn wanted(self) -> &'a AtomicU64 {
        &self.0[1]
    }

    /// The words from a line on.
    fn line(self, line: u64) -> &'a [AtomicU64] {
        &self.0[(1 + (line % LINES as u64) as usize) * LINE_WORDS..]
    }
}

/// The writer's end.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    /// Lines written since the beginning.
    lines: u64,
    /// How many of these the reader was done with when last asked.
    done: u64,
    /// The lines from the last one written up to this have a first word of 0.
    cleared: u64,
}

/// Why a message did not go into a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// There is no room; the reader rings when there is.
    Full,
    /// The reader says what can't be.
    Broken,
}

impl Writer {
    /// Appends `message`, which [fits](Message::fits).
    pub(crate) fn push(&mut self, ring: Words<'_>, message: &Message<'_>) -> Result<(), Refused> {
        let lines = message.head().words().div_ceil(LINE_WORDS) as u64;
        let left = LINES as u64 - self.lines % LINES as u64;
        let skipped = if lines > left { left } else { 0 };
        self.make_room(ring, skipped + lines + 1)?;
        let start = self.lines + skipped;
        let words = ring.line(start);
        let first = message.write(|at, word| words[at].store(word, Ordering::Relaxed));
        // Its own lines need none.
        self.cleared = self.cleared.max(start + lines);
        self.clear(ring, start + lines + 1);
        words[0].store(first, Ordering::Release);
        if skipped > 0 {
            ring.line(self.lines)[0].store(SKIP, Ordering::Release);
        }
        self.lines = start + lines;
        if self.cleared < self.lines + AHEAD_LINES {
            self.clear(ring, (self.lines + 2 * AHEAD_LINES).min(self.done + LINES as u64));
        }
        Ok(())
    }

    /// Clears the first words of all lines before this one, which the reader is done with.
    fn clear(&mut self, ring: Words<'_>, end: u64) {
        (self.cleared..end).for_each(|line| ring.line(line)[0].store(0, Ordering::Relaxed));
        self.cleared = self.cleared.max(end);
    }

    /// Sees to it that so many lines are free.
    fn make_room(&mut self, ring: Words<'_>, lines: u64) -> Result<(), Refused> {
        let needed = (self.lines + lines).saturating_sub(LINES as u64);
        if self.done >= needed || self.ask(ring)? >= needed {
            return Ok(());
        }
        // Wanted before it is looked at once more: else the reader might miss that. It stays so where there
        // is room now: another thread of the writer's may wait too.
        ring.wanted().store(1, Ordering::SeqCst);
        if self.ask(ring)? >= needed { Ok(()) } else { Err(Refused::Full) }
    }

    /// How many lines the reader is done with.
    fn ask(&mut self, ring: Words<'_>) -> Result<u64, Refused> {
        let done = ring.done().load(Ordering::SeqCst);
        if done > self.lines || done < self.done {
            return Err(Refused::Broken);
        }
        self.done = done;
        Ok(done)
    }
}

/// The reader's end.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// Lines read since the beginning.
    lines: u64,
    /// How many of these the writer was told of.
    told: u64,
    /// Whether it came to what no writer writes.
    has_ended: bool,
}

/// What a look at a ring found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing.
    Nothing,
    /// A message, which was copied.
    Message {
        /// Whether the writer waits for room, and there is now.
        wakes: bool,
    },
    /// What no writer writes: nothing follows.
    Broken,
}

impl Reader {
    /// Whether there is something to read.
    pub(crate) fn is_ready(&self, ring: Words<'_>) -> bool {
        !self.has_ended && ring.line(self.lines)[0].load(Ordering::Acquire) != 0
    }

    /// Takes the next message.
    pub(crate) fn pop(&mut self, ring: Words<'_>, into: &mut Copied) -> Found {
        let mut first = ring.line(self.lines)[0].load(Ordering::Acquire);
        if first == SKIP {
            self.lines = self.lines.next_multiple_of(LINES as u64);
            first = ring.line(self.lines)[0].load(Ordering::Acquire);
        }
        if first == 0 {
            return Found::Nothing;
        }
        let left = LINES - (self.lines % LINES as u64) as usize;
        let fits = |head: &Head| head.words() <= left * LINE_WORDS;
        let Some(head) = Head::of(first, MOST_BYTES).filter(fits) else {
            self.has_ended = true;
            return Found::Broken;
        };
        let words = ring.line(self.lines);
        into.fill(head, |at| words[at].load(Ordering::Relaxed));
        self.lines += head.words().div_ceil(LINE_WORDS) as u64;
        Found::Message { wakes: self.tell(ring) }
    }

    /// Says how far it has come, if it is time to; returns whether the writer waits for that.
    fn tell(&mut self, ring: Words<'_>) -> bool {
        if self.lines - self.told < TOLD_LINES {
            return false;
        }
        self.told = self.lines;
        ring.done().store(self.lines, Ordering::SeqCst);
        // Looked at only now: else it might be asked for in between.
        let wanted = ring.wanted();
        wanted.load(Ordering::SeqCst) != 0 && wanted.swap(0, Ordering::SeqCst) != 0
    }
}
