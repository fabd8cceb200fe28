//! An active message, and the words that it is in a queue.
//!
//! The first word says what follows: a byte for the kind, one for the handler, one for the number of
//! arguments, and from bit 32 on how many bytes of payload there are. Arguments are two a word; a
//! long message then says where its payload lies in the receiver's segment, others have it behind.

/// The most arguments of a message (GASNet's).
pub const MOST_ARGS: usize = 16;

/// The most bytes of a payload that travels in a queue in shared memory.
pub(crate) const MOST_BYTES: usize = 4096;

/// The most bytes before a payload.
pub(crate) const FRONT_BYTES: usize = 8 * (2 + MOST_ARGS / 2);

/// The most words of a message.
pub(crate) const MOST_WORDS: usize = 1 + MOST_ARGS / 2 + MOST_BYTES / 8;

/// What a message carries besides its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload<'a> {
    /// Nothing: a short message.
    None,
    /// So many bytes, in the queue: a medium message.
    Bytes(&'a [u8]),
    /// What lies in the receiver's segment already: a long message.
    Placed {
        /// From where on, in bytes.
        at: u64,
        /// How many bytes, less than 4 GiB.
        bytes: u32,
    },
}

impl<'a> Payload<'a> {
    /// `bytes`, in the message.
    pub(crate) fn of(bytes: &'a [u8]) -> Payload<'a> {
        if bytes.is_empty() { Payload::None } else { Payload::Bytes(bytes) }
    }

    /// What of it travels with the message.
    pub(crate) fn carried(self) -> &'a [u8] {
        if let Payload::Bytes(bytes) = self { bytes } else { &[] }
    }
}

/// An active message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// The index of the handler that runs it.
    pub handler: u8,
    /// Up to [`MOST_ARGS`] arguments.
    pub args: &'a [u32],
    /// What else it carries.
    pub payload: Payload<'a>,
    /// More of [`Payload::Bytes`], which lie elsewhere: whoever receives it has one piece.
    pub rest: &'a [u8],
}

const SHORT: u64 = 1;
const MEDIUM: u64 = 2;
const LONG: u64 = 3;

/// What the first word says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    kind: u64,
    handler: u8,
    args: usize,
    bytes: u32,
}

impl Head {
    /// `None` for what no message starts with whose payload has at most `most` bytes.
    pub(crate) fn of(word: u64, most: usize) -> Option<Head> {
        let [kind, handler, args, rest, ..] = word.to_le_bytes();
        let head =
            Head { kind: kind.into(), handler, args: args.into(), bytes: (word >> 32) as u32 };
        let fits = match head.kind {
            SHORT => head.bytes == 0,
            MEDIUM => head.bytes as usize <= most,
            LONG => true,
            _ => false,
        };
        (fits && rest == 0 && head.args <= MOST_ARGS).then_some(head)
    }

    /// How many bytes the message has on a stream, where a payload is not padded.
    pub(crate) fn bytes(self) -> usize {
        let body = match self.kind {
            MEDIUM => self.bytes as usize,
            LONG => 8,
            _ => 0,
        };
        8 + 8 * self.args.div_ceil(2) + body
    }

    /// How many words the message has, this one among them.
    pub(crate) fn words(self) -> usize {
        let body = match self.kind {
            MEDIUM => (self.bytes as usize).div_ceil(8),
            LONG => 1,
            _ => 0,
        };
        1 + self.args.div_ceil(2) + body
    }

    /// Calls `run` with the message that starts with this and goes on with `body`.
    ///
    /// # Panics
    /// Where `body` is shorter than this says.
    pub(crate) fn with<T>(self, body: &[u8], run: impl FnOnce(Message<'_>) -> T) -> T {
        let Head { kind, handler, args: count, bytes } = self;
        let (packed, rest) = body.split_at(8 * count.div_ceil(2));
        let mut args = [0; MOST_ARGS];
        for (arg, packed) in args[..count].iter_mut().zip(packed.as_chunks::<4>().0) {
            *arg = u32::from_le_bytes(*packed);
        }
        let payload = match kind {
            MEDIUM => Payload::Bytes(&rest[..bytes as usize]),
            LONG => {
                let at = rest.first_chunk::<8>().map_or(0, |at| u64::from_le_bytes(*at));
                Payload::Placed { at, bytes }
            }
            _ => Payload::None,
        };
        run(Message { handler, args: &args[..count], payload, rest: &[] })
    }

    fn word(self) -> u64 {
        self.kind
            | u64::from(self.handler) << 8
            | (self.args as u64) << 16
            | u64::from(self.bytes) << 32
    }
}

impl<'a> Message<'a> {
    /// Whether it is no longer than a message may be, whose payload has at most `most` bytes.
    pub(crate) fn fits(&self, most: usize) -> bool {
        let has_one = self.rest.is_empty() || matches!(self.payload, Payload::Bytes(_));
        has_one && self.args.len() <= MOST_ARGS && self.bytes() <= most
    }

    /// The bytes of its payload that travel with it.
    pub(crate) fn bytes(&self) -> usize {
        self.payload.carried().len() + self.rest.len()
    }

    pub(crate) fn head(&self) -> Head {
        let (kind, bytes) = match self.payload {
            Payload::None => (SHORT, 0),
            Payload::Bytes(_) => (MEDIUM, self.bytes() as u32),
            Payload::Placed { bytes, .. } => (LONG, bytes),
        };
        Head { kind, handler: self.handler, args: self.args.len(), bytes }
    }

    /// Gives its words but for the first one to `store`, numbered from 1, and returns the first.
    pub(crate) fn write(&self, mut store: impl FnMut(usize, u64)) -> u64 {
        let mut at = self.write_front(&mut store);
        let mut put = |word| {
            store(at, word);
            at += 1;
        };
        let joined;
        let bytes = if self.rest.is_empty() {
            self.payload.carried()
        } else {
            joined = [self.payload.carried(), self.rest].concat();
            &joined
        };
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|&word| put(u64::from_le_bytes(word)));
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            put(u64::from_le_bytes(last));
        }
        self.head().word()
    }

    /// Gives those of its words to `store` that are between the first one and a payload, and returns
    /// how many there are with the first.
    fn write_front(&self, store: &mut impl FnMut(usize, u64)) -> usize {
        let mut at = 1;
        let mut put = |word| {
            store(at, word);
            at += 1;
        };
        for pair in self.args.chunks(2) {
            put(u64::from(pair[0]) | u64::from(*pair.get(1).unwrap_or(&0)) << 32);
        }
        if let Payload::Placed { at, .. } = self.payload {
            put(at);
        }
        at
    }

    /// The bytes before a payload, of which so many count.
    pub(crate) fn front(&self) -> ([u8; FRONT_BYTES], usize) {
        let mut bytes = [0; FRONT_BYTES];
        let words = bytes.as_chunks_mut().0;
        let count = self.write_front(&mut |at, word| words[at] = word.to_le_bytes());
        words[0] = self.head().word().to_le_bytes();
        (bytes, 8 * count)
    }
}

/// A message that was copied out of a queue.
#[derive(Debug)]
pub(crate) struct Copied {
    head: Head,
    /// What follows the first word.
    bytes: [u8; 8 * (MOST_WORDS - 1)],
}

impl Copied {
    pub(crate) fn new() -> Copied {
        let head = Head { kind: SHORT, handler: 0, args: 0, bytes: 0 };
        Copied { head, bytes: [0; 8 * (MOST_WORDS - 1)] }
    }

    /// Copies the message that starts with `head`, whose words `load` gives.
    pub(crate) fn fill(&mut self, head: Head, load: impl Fn(usize) -> u64) {
        self.head = head;
        let words = self.bytes.as_chunks_mut::<8>().0;
        for (word, at) in words.iter_mut().zip(1..head.words()) {
            *word = load(at).to_le_bytes();
        }
    }

    /// Calls `run` with the message.
    pub(crate) fn with<T>(&self, run: impl FnOnce(Message<'_>) -> T) -> T {
        self.head.with(&self.bytes, run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn copied(message: &Message<'_>) -> Copied {
        let mut words = [0; MOST_WORDS];
        words[0] = message.write(|at, word| words[at] = word);
        let head = Head::of(words[0], MOST_BYTES).unwrap();
        let mut copied = Copied::new();
        copied.fill(head, |at| words[at]);
        copied
    }

    proptest! {
        #[test]
        fn messages_arrive_as_they_were(
            handler: u8,
            args in prop::collection::vec(any::<u32>(), 0..=MOST_ARGS),
            bytes in prop::option::of(prop::collection::vec(any::<u8>(), 0..=MOST_BYTES)),
            placed: Option<(u64, u32)>,
            cut in 0..=MOST_BYTES,
        ) {
            let payload = match (&bytes, placed) {
                (Some(bytes), _) => Payload::Bytes(bytes),
                (None, Some((at, bytes))) => Payload::Placed { at, bytes },
                (None, None) => Payload::None,
            };
            let message = Message { handler, args: &args, payload, rest: &[] };
            prop_assert!(message.fits(MOST_BYTES));
            copied(&message).with(|back| assert_eq!(back, message));
            if let Some(bytes) = &bytes {
                let (one, other) = bytes.split_at(cut.min(bytes.len()));
                let in_two = Message { payload: Payload::Bytes(one), rest: other, ..message };
                copied(&in_two).with(|back| assert_eq!(back, message));
            }
        }

        #[test]
        fn any_word_is_a_message_that_fits_or_none(word: u64) {
            if let Some(head) = Head::of(word, MOST_BYTES) {
                prop_assert!(head.words() <= MOST_WORDS);
                let mut copied = Copied::new();
                copied.fill(head, |at| at as u64);
                copied.with(|message| assert!(message.fits(MOST_BYTES)));
            }
        }
    }

    #[test]
    fn what_is_too_long_or_unknown_is_no_message() {
        let word = |kind: u64, args: u64, bytes: u64| kind | args << 16 | bytes << 32;
        assert!(Head::of(word(MEDIUM, 16, 4096), MOST_BYTES).is_some());
        for word in [0, word(4, 0, 0), word(SHORT, 17, 0), word(MEDIUM, 0, 4097), word(SHORT, 0, 1)]
        {
            assert_eq!(Head::of(word, MOST_BYTES), None);
        }
    }
}
