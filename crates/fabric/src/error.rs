use crate::conduit::Lost;
use model::NodeId;
use std::io;
use std::time::Duration;

/// What went wrong in a fabric.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A variable or an argument that can't be.
    #[error("{name}: {why}")]
    Config {
        /// Which.
        name: &'static str,
        /// What it should be.
        why: String,
    },
    /// Not all ranks joined in time.
    #[error("waited {waited:?} for ranks {missing:?} of {size} to join")]
    Missing {
        /// Those that didn't.
        missing: Vec<u32>,
        /// How many were to.
        size: u32,
        /// How long was waited.
        waited: Duration,
    },
    /// A peer refused, or was refused.
    #[error("rank {rank}: {why}")]
    Refused {
        /// Which, as it says.
        rank: u32,
        /// Why.
        why: &'static str,
    },
    /// Ranks that were there at the start were told different numbers of ranks.
    #[error(
        "{name} is {theirs} for rank {rank}, and {ours} for this one: set it to the same for all"
    )]
    Disagreement {
        /// The other one.
        rank: u32,
        /// The variable that says it: `ISOMETRY_SIZE` or `ISOMETRY_CAPACITY`.
        name: &'static str,
        /// How many it says that there are.
        theirs: u32,
        /// How many this one does.
        ours: u32,
    },
    /// Nobody lets a rank in that comes later.
    #[error(
        "waited {waited:?}, and nobody at `{root}` lets ranks in that come later: is rank 0 there and \
         not stopped, and has it more room (ISOMETRY_CAPACITY) than ranks at the start?"
    )]
    Unanswered {
        /// Where.
        root: String,
        /// How long was waited.
        waited: Duration,
    },
    /// Rank 0 has heard a rank that comes later, which did not get its turn.
    #[error(
        "waited {waited:?} for its turn to join: rank 0 lets another rank in, which takes long, or it is \
         stopped; try again, or wait for longer"
    )]
    Busy {
        /// How long was waited.
        waited: Duration,
    },
    /// A peer takes nothing, and says nothing.
    #[error("rank {} has had no room, and said nothing, for {waited:?}: it is stopped, or has no time", .peer.0)]
    Silent {
        /// Which.
        peer: NodeId,
        /// How long was waited.
        waited: Duration,
    },
    /// A rank that is there does not answer one that comes later.
    #[error(
        "rank {rank} is there, and said nothing for {waited:?} to this rank, which comes later: it is stopped, \
         or has no time; let it go on, or end it, and join again"
    )]
    Unresponsive {
        /// Which.
        rank: u32,
        /// How long was waited.
        waited: Duration,
    },
    /// A rank that is there has the name of one that comes later.
    #[error(
        "rank {rank} is there, and has the name `{name}`: choose another one, or wait until it has gone"
    )]
    NameTaken {
        /// Which name.
        name: String,
        /// Who has it.
        rank: u32,
    },
    /// There is no room for one more rank, and there will be none.
    #[error(
        "all {capacity} places of this fabric have been taken; ISOMETRY_CAPACITY of the ranks at the \
         start says how many there are"
    )]
    Full {
        /// How many there are.
        capacity: u32,
    },
    /// What only ranks do that were there at the start.
    #[error("rank {} came later: barriers and firehoses are of the first {founders} ranks", .peer.0)]
    Late {
        /// Which came later.
        peer: NodeId,
        /// How many were there.
        founders: u32,
    },
    /// A peer has died, has left, or sent what can't be.
    #[error("rank {} is lost: {why}", .peer.0)]
    PeerLost {
        /// Which.
        peer: NodeId,
        /// Why.
        why: Lost,
    },
    /// There is no such rank.
    #[error("there is no rank {} among {size} ranks", .peer.0)]
    NoSuchPeer {
        /// Which.
        peer: NodeId,
        /// One more than the highest that there is.
        size: u32,
    },
    /// A put or a get outside of what the peer published.
    #[error("{bytes} B at {at} of rank {}'s segment, which has {of} B", .peer.0)]
    OutOfBounds {
        /// Whose segment.
        peer: NodeId,
        /// From where on, in bytes.
        at: u64,
        /// How many bytes.
        bytes: u64,
        /// How many there are.
        of: u64,
    },
    /// A copy from or to what a caller's own buffer does not have.
    #[error(
        "a copy reaches outside of its buffer of {bytes} B, or has too short a list of indices"
    )]
    OutOfBuffer {
        /// How many bytes that has.
        bytes: usize,
    },
    /// A message of too many arguments or bytes.
    #[error("a message of {args} arguments and {bytes} B; at most {most_args} and {most_bytes} B")]
    TooLong {
        /// How many arguments it has.
        args: usize,
        /// How many bytes.
        bytes: usize,
        /// The most arguments.
        most_args: usize,
        /// The most bytes.
        most_bytes: usize,
    },
    /// More memory at once than may be pinned for one rank.
    #[error("{bytes} B of a rank's memory at once, of which {most} B may be pinned")]
    TooMuch {
        /// How many bytes, in whole buckets.
        bytes: u64,
        /// How many may be.
        most: u64,
    },
    /// A rank's memory could not be pinned.
    #[error("rank {}'s memory can't be pinned: {source}", .peer.0)]
    Unpinned {
        /// Whose.
        peer: NodeId,
        /// What its system says.
        source: io::Error,
    },
    /// What a handler may not do, nor who holds handlers off: send requests, wait, or reply where
    /// there was no request or a reply already.
    #[error("a handler, or who holds handlers off, may not {what}")]
    InHandler {
        /// What it did.
        what: &'static str,
    },
    /// What was waited for did not come in time.
    #[error("nothing came in {waited:?}")]
    Timeout {
        /// How long was waited.
        waited: Duration,
    },
    /// Ranks gave a barrier different ids.
    #[error("ranks came to a barrier with different ids")]
    BarrierMismatch {
        /// The one given here, if any.
        id: Option<u32>,
    },
    /// What the system refused.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// The kinds of [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Wrong arguments, here: [`Error::Config`], [`Error::NoSuchPeer`], [`Error::OutOfBounds`],
    /// [`Error::OutOfBuffer`], [`Error::TooLong`], [`Error::TooMuch`], [`Error::InHandler`],
    /// [`Error::Late`].
    Usage,
    /// [`Error::Missing`], [`Error::Refused`], [`Error::Disagreement`], [`Error::Unanswered`],
    /// [`Error::Busy`], [`Error::Unresponsive`], [`Error::NameTaken`], [`Error::Full`].
    Join,
    /// [`Error::PeerLost`], [`Error::Silent`].
    PeerLost,
    /// [`Error::Timeout`].
    Timeout,
    /// [`Error::BarrierMismatch`].
    BarrierMismatch,
    /// [`Error::Unpinned`], [`Error::Io`].
    Io,
}

impl Error {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Config { .. }
            | Error::NoSuchPeer { .. }
            | Error::OutOfBounds { .. }
            | Error::OutOfBuffer { .. }
            | Error::TooLong { .. }
            | Error::TooMuch { .. }
            | Error::InHandler { .. }
            | Error::Late { .. } => ErrorKind::Usage,
            Error::Missing { .. }
            | Error::Refused { .. }
            | Error::Disagreement { .. }
            | Error::Unanswered { .. }
            | Error::Busy { .. }
            | Error::Unresponsive { .. }
            | Error::NameTaken { .. }
            | Error::Full { .. } => ErrorKind::Join,
            Error::PeerLost { .. } | Error::Silent { .. } => ErrorKind::PeerLost,
            Error::Timeout { .. } => ErrorKind::Timeout,
            Error::BarrierMismatch { .. } => ErrorKind::BarrierMismatch,
            Error::Unpinned { .. } | Error::Io { .. } => ErrorKind::Io,
        }
    }

    /// Whether the same call may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        let may_pass = matches!(self.kind(), ErrorKind::Timeout | ErrorKind::Join);
        may_pass && !matches!(self, Error::Full { .. })
    }

    pub(crate) fn io(doing: &'static str) -> impl Fn(io::Error) -> Error {
        move |source| Error::Io { doing, source }
    }

    pub(crate) fn os(doing: &'static str) -> impl Fn(rustix::io::Errno) -> Error {
        move |errno| Error::Io { doing, source: errno.into() }
    }
}
