//! What a stream between two ranks is made of.
//!
//! **Hazard.** The other end may send anything. **Guarantee.** What no rank sends ends the stream, and
//! nothing of it reaches past the segment or the buffer. **Structure.** A frame starts with a word whose
//! lowest byte is its kind. A message follows as in a queue of shared memory, its payload unpadded; a
//! put has the place of its bytes in a second word, and then these; a farewell has nothing.

use crate::conduit::Run;
use crate::message::{Head, Message, Payload};
use std::iter::once;

/// The lowest bytes of first words, beside those of messages.
const PUT: u64 = 4;
const BYE: u64 = 5;

/// The bytes of a put's frame before those that it puts.
pub(crate) const PUT_FRONT: usize = 16;

/// The most bytes that one frame puts: what of it is not written at once is copied.
const PUT_BYTES: usize = 128 << 10;

/// The most frames of puts that are written at once, and the most runs that these have: the kernel
/// takes 1024 pieces.
const PUTS: usize = 16;
const RUNS: usize = 256;

/// The frame of who leaves.
pub(crate) const FAREWELL: [u8; 8] = BYE.to_le_bytes();

/// What a receiver takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of a payload that travels with a message.
    pub medium_bytes: usize,
    /// How many bytes there are to put to.
    pub segment_bytes: u64,
}

impl Limits {
    fn admit(self, at: u64, bytes: u32) -> bool {
        at.checked_add(bytes.into()).is_some_and(|end| end <= self.segment_bytes)
    }
}

/// A frame, without the bytes that a put puts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'a> {
    /// An active message; one that is long lies within the segment.
    Message(Message<'a>),
    /// So many bytes follow, which go within the segment.
    Put {
        /// From where on, in bytes.
        at: u64,
        /// How many, at least one.
        bytes: u32,
    },
    /// Nothing follows.
    Bye,
}

/// What a stream no rank speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken;

/// A frame that has come whole, without the bytes that a put puts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Front {
    kind: Kind,
    length: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Message(Head),
    Put(u64, u32),
    Bye,
}

impl Front {
    /// The frame that `bytes` start with; `None` while not all of it is there.
    ///
    /// # Errors
    /// [`Broken`] for what no rank sends to who has these limits.
    pub fn of(bytes: &[u8], limits: Limits) -> Result<Option<Front>, Broken> {
        let Some((word, rest)) = bytes.split_first_chunk() else { return Ok(None) };
        let word = u64::from_le_bytes(*word);
        match word & 0xFFFF_FFFF {
            PUT => {
                let Some(at) = rest.first_chunk() else { return Ok(None) };
                let (at, bytes) = (u64::from_le_bytes(*at), (word >> 32) as u32);
                let fits = bytes > 0 && limits.admit(at, bytes);
                let front = Front { kind: Kind::Put(at, bytes), length: PUT_FRONT };
                if fits { Ok(Some(front)) } else { Err(Broken) }
            }
            BYE if word == BYE => Ok(Some(Front { kind: Kind::Bye, length: FAREWELL.len() })),
            _ => Front::of_message(word, bytes, limits),
        }
    }

    fn of_message(word: u64, bytes: &[u8], limits: Limits) -> Result<Option<Front>, Broken> {
        let head = Head::of(word, limits.medium_bytes).ok_or(Broken)?;
        let length = head.bytes();
        let Some(body) = bytes.get(8..length) else { return Ok(None) };
        let is_within = head.with(body, |message| match message.payload {
            Payload::Placed { at, bytes } => limits.admit(at, bytes),
            _ => true,
        });
        let front = Front { kind: Kind::Message(head), length };
        if is_within { Ok(Some(front)) } else { Err(Broken) }
    }

    /// How many bytes it has.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }

    /// Calls `run` with the frame.
    ///
    /// # Panics
    /// Where `bytes` are not those that it was found in.
    pub fn with<T>(self, bytes: &[u8], run: impl FnOnce(Frame<'_>) -> T) -> T {
        match self.kind {
            Kind::Message(head) => {
                head.with(&bytes[8..self.length], |message| run(Frame::Message(message)))
            }
            Kind::Put(at, bytes) => run(Frame::Put { at, bytes }),
            Kind::Bye => run(Frame::Bye),
        }
    }
}

/// What comes before the bytes of a put.
pub(crate) fn put_front(at: u64, bytes: u32) -> [u8; PUT_FRONT] {
    let mut front = [0; PUT_FRONT];
    front[..8].copy_from_slice(&(PUT | u64::from(bytes) << 32).to_le_bytes());
    front[8..].copy_from_slice(&at.to_le_bytes());
    front
}

/// A frame that puts, from where its bytes lie.
pub(crate) struct PutFrame<'a> {
    at: u64,
    bytes: usize,
    front: [u8; PUT_FRONT],
    behind: Vec<&'a [u8]>,
}

impl<'a> PutFrame<'a> {
    fn at(at: u64) -> PutFrame<'a> {
        PutFrame { at, bytes: 0, front: [0; PUT_FRONT], behind: Vec::new() }
    }

    /// Adds what goes behind the rest.
    fn add(&mut self, part: &'a [u8]) {
        self.behind.push(part);
        self.bytes += part.len();
        self.front = put_front(self.at, self.bytes as u32);
    }

    /// Whether what goes to `at` may go with it.
    fn takes(&self, at: u64) -> bool {
        self.at + self.bytes as u64 == at && self.bytes < PUT_BYTES
    }

    /// How many bytes it puts.
    pub(crate) fn puts(&self) -> usize {
        self.bytes
    }

    /// What it is made of, in order.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &[u8]> {
        once(&self.front[..]).chain(self.behind.iter().copied())
    }
}

/// Frames of the first of `runs`, at most [`PUTS`] of [`RUNS`]; those that follow each other share one.
pub(crate) fn put_frames<'a>(runs: &[Run<'a>]) -> Vec<PutFrame<'a>> {
    let mut frames: Vec<PutFrame<'a>> = Vec::new();
    for &(mut at, mut bytes) in runs.iter().take(RUNS) {
        while !bytes.is_empty() {
            if !frames.last().is_some_and(|last| last.takes(at)) {
                if frames.len() == PUTS {
                    return frames;
                }
                frames.push(PutFrame::at(at));
            }
            let Some(last) = frames.last_mut() else { break };
            let (part, rest) = bytes.split_at(bytes.len().min(PUT_BYTES - last.bytes));
            last.add(part);
            (at, bytes) = (at + part.len() as u64, rest);
        }
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::MOST_ARGS;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits { medium_bytes: 1000, segment_bytes: 5000 };

    fn sent(message: &Message<'_>) -> Vec<u8> {
        let (front, length) = message.front();
        [&front[..length], message.payload.carried(), message.rest].concat()
    }

    proptest! {
        #[test]
        fn messages_arrive_as_they_were_once_they_are_whole(
            handler: u8,
            args in prop::collection::vec(any::<u32>(), 0..=MOST_ARGS),
            bytes in prop::option::of(prop::collection::vec(any::<u8>(), 1..=1000)),
            placed in prop::option::of((0_u64..2000, 0_u32..3000)),
            cut in 0_usize..1100,
        ) {
            let payload = match (&bytes, placed) {
                (Some(bytes), _) => Payload::Bytes(bytes),
                (None, Some((at, bytes))) => Payload::Placed { at, bytes },
                (None, None) => Payload::None,
            };
            let message = Message { handler, args: &args, payload, rest: &[] };
            let mut stream = sent(&message);
            let length = stream.len();
            prop_assert_eq!(Front::of(&stream[..cut.min(length - 1)], LIMITS), Ok(None));
            stream.extend([7; 9]);
            let front = Front::of(&stream, LIMITS).unwrap().unwrap();
            prop_assert_eq!(front.length(), length);
            front.with(&stream, |frame| assert_eq!(frame, Frame::Message(message)));
        }

        #[test]
        fn whatever_is_taken_is_within_the_limits(
            (kind, args, length) in (0_u8..7, prop_oneof![Just(0_u8), any::<u8>()], 0_u32..6000),
            at in prop_oneof![0_u64..6000, any::<u64>()],
            rest in prop::collection::vec(any::<u8>(), 0..1200),
        ) {
            let word = [&[kind, 0, args, 0][..], &length.to_le_bytes()].concat();
            let bytes = [&word[..], &at.to_le_bytes(), &rest].concat();
            if let Ok(Some(front)) = Front::of(&bytes, LIMITS) {
                prop_assert!(front.length() <= bytes.len());
                front.with(&bytes, |frame| match frame {
                    Frame::Message(message) => assert!(message.fits(LIMITS.medium_bytes)),
                    Frame::Put { at, bytes } => assert!(at + u64::from(bytes) <= 5000),
                    Frame::Bye => {}
                });
            }
        }
    }

    proptest! {
        #[test]
        fn puts_are_the_first_of_their_runs(
            runs in prop::collection::vec((0_u64..3, 1_usize..300_000), 1..40),
        ) {
            let src: Vec<u8> = (0..300_000_u32).map(|i| (i * 7 / 3) as u8).collect();
            let mut end = 0;
            let runs: Vec<Run<'_>> = runs.into_iter().map(|(gap, bytes)| {
                let at = end + gap * gap;
                end = at + bytes as u64;
                (at, &src[..bytes])
            }).collect();
            let frames = put_frames(&runs);
            let (mut stream, mut all) = (vec![None; end as usize], vec![None; end as usize]);
            let mut left: usize = frames.iter().map(PutFrame::puts).sum();
            for &(at, bytes) in &runs {
                let some = bytes.len().min(left);
                left -= some;
                (all[at as usize..].iter_mut().zip(&bytes[..some])).for_each(|(to, &b)| *to = Some(b));
            }
            let limits = Limits { medium_bytes: 1000, segment_bytes: end };
            for frame in &frames {
                let bytes = frame.parts().collect::<Vec<_>>().concat();
                prop_assert!(bytes.len() == PUT_FRONT + frame.puts() && frame.puts() <= PUT_BYTES);
                let front = Front::of(&bytes, limits).unwrap().unwrap();
                let put = front.with(&bytes, |put| match put {
                    Frame::Put { at, bytes } => (at as usize, bytes as usize),
                    other => panic!("{other:?}"),
                });
                prop_assert_eq!(put.1, frame.puts());
                let places = stream[put.0..].iter_mut().zip(&bytes[front.length()..]);
                places.for_each(|(to, &b)| *to = Some(b));
            }
            prop_assert!(stream == all);
            let is_whole = all.iter().flatten().count() == runs.iter().map(|run| run.1.len()).sum::<usize>();
            prop_assert!(is_whole || frames.len() == PUTS);
        }
    }

    #[test]
    fn runs_that_follow_each_other_share_frames() {
        let bytes = vec![0; PUT_BYTES];
        let puts =
            |runs: &[Run<'_>]| put_frames(runs).iter().map(PutFrame::puts).collect::<Vec<_>>();
        assert_eq!(puts(&[(8, &bytes[..100]), (108, &bytes[..50]), (159, &bytes[..1])]), [150, 1]);
        assert_eq!(puts(&[(0, &bytes[1..]), (PUT_BYTES as u64 - 1, &bytes[..3])]), [PUT_BYTES, 2]);
        let many: Vec<Run<'_>> = (0..1000).map(|at| (at, &bytes[..1])).collect();
        assert_eq!(puts(&many), [RUNS]);
    }

    #[test]
    fn puts_are_within_the_segment_and_of_something() {
        let of = |at, bytes| Front::of(&put_front(at, bytes), LIMITS);
        for (at, bytes) in [(0, 1), (0, 5000), (4999, 1)] {
            let front = of(at, bytes).unwrap().unwrap();
            front.with(&[], |frame| assert_eq!(frame, Frame::Put { at, bytes }));
        }
        for (at, bytes) in [(0, 0), (0, 5001), (5000, 1), (u64::MAX, 1), (u64::MAX, u32::MAX)] {
            assert_eq!(of(at, bytes), Err(Broken));
        }
        assert_eq!(Front::of(&put_front(0, 1)[..15], LIMITS), Ok(None));
        let long = |at, bytes| {
            let payload = Payload::Placed { at, bytes };
            Front::of(&sent(&Message { handler: 1, args: &[], payload, rest: &[] }), LIMITS)
        };
        assert!(long(4000, 1000).is_ok_and(|front| front.is_some()));
        assert_eq!([long(4001, 1000), long(u64::MAX, 1)], [Err(Broken); 2]);
        assert_eq!(Front::of(&(BYE | 1 << 40).to_le_bytes(), LIMITS), Err(Broken));
    }
}
