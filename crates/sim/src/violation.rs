//! What the simulator holds an engine to.

use crate::waits::Waits;
use model::{ChannelId, NodeId, Outcome, Place, RequestId};
use std::ops::Range;
use thiserror::Error;

/// A rule that an engine broke, or a run that could not be set up. Transfers and fences are named
/// by their position in the scenario.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Violation {
    /// What one engine tells another does not come as it went.
    #[error("a packet can't be read: {why}")]
    Unreadable {
        /// What is wrong with it.
        why: String,
    },
    /// A copy reaches outside its region.
    #[error("a copy touches {span:?} from {place:?}, of {len_bytes} bytes")]
    OutOfBounds {
        /// The base of the copy's offsets.
        place: Place,
        /// The bytes that it touches.
        span: Range<i64>,
        /// The region's length.
        len_bytes: u64,
    },
    /// A request reads staging that the hop before has not written for it.
    #[error("a request reads staging at {place:?} that holds no complete payload of its transfer")]
    ReadsUnwritten {
        /// Its source.
        place: Place,
    },
    /// A request writes staging that still holds payload, or is in use.
    #[error("a request writes staging at {place:?} that is still in use")]
    OverwritesUnread {
        /// Its destination.
        place: Place,
    },
    /// Staging changed hands under a request in flight.
    #[error("staging at {place:?} changed hands under a request in flight")]
    Stolen {
        /// The request's destination.
        place: Place,
    },
    /// A transfer ended while a channel still touched its memory.
    #[error("a transfer ended with requests in flight")]
    EndedInFlight,
    /// A transfer that is done left payload in staging.
    #[error("a transfer is done, and {bytes} bytes of it lie in staging")]
    LeftInStaging {
        /// How many.
        bytes: u64,
    },
    /// Staging is in use and no transfer is, or the engine says that it is not idle.
    #[error("every transfer has ended, {bytes} bytes of staging are in use, or others run")]
    StagingLeak {
        /// How many.
        bytes: u64,
    },
    /// A request came for a transfer that has not started or has ended.
    #[error("request {request:?} belongs to a transfer that is not running")]
    NotRunning {
        /// The request.
        request: RequestId,
    },
    /// A request came before something that its transfer waits for.
    #[error("request {request:?} came before what transfer {transfer} waits for")]
    TooEarly {
        /// The request.
        request: RequestId,
        /// Its transfer.
        transfer: usize,
    },
    /// An id was given out twice, or not in ascending order on one channel.
    #[error("request {request:?} is out of order")]
    OutOfOrder {
        /// The request.
        request: RequestId,
    },
    /// A request for a channel that does not exist or is full, or that its hop does not run on.
    #[error("request {request:?} does not belong on {channel:?} now")]
    WrongChannel {
        /// The request.
        request: RequestId,
        /// The channel.
        channel: ChannelId,
    },
    /// A request copies between other memories than its hop joins.
    #[error("request {request:?} copies between other memories than its hop joins")]
    WrongMemory {
        /// The request.
        request: RequestId,
    },
    /// The bytes that a request claims to carry are not what its copies move.
    #[error("request {request:?} moves {moved} bytes and claims {claimed}")]
    WrongPayload {
        /// The request.
        request: RequestId,
        /// The payload of its list.
        moved: u64,
        /// Its `payload_bytes`.
        claimed: u64,
    },
    /// A less urgent request went first though a more urgent one was ready.
    #[error("transfer {passed} was ready on {channel:?} when a less urgent request went first")]
    PassedOver {
        /// The more urgent transfer.
        passed: usize,
        /// Where.
        channel: ChannelId,
    },
    /// A commit came before the bytes, twice, or with its file's bytes still in flight.
    #[error("a commit or abort of transfer {transfer} came at a wrong moment")]
    WrongCommit {
        /// The transfer.
        transfer: usize,
    },
    /// A transfer ended in a way that nothing in the scenario explains.
    #[error("transfer {transfer} ended with {outcome:?}, which nothing explains")]
    Unexplained {
        /// The transfer.
        transfer: usize,
        /// How it ended.
        outcome: Outcome,
    },
    /// A transfer ended twice.
    #[error("transfer {transfer} ended twice")]
    EndedTwice {
        /// The transfer.
        transfer: usize,
    },
    /// Progress ran backwards, passed the total, or did not reach it.
    #[error("progress of transfer {transfer} went from {before} to {after} of {total} bytes")]
    Progress {
        /// The transfer.
        transfer: usize,
        /// Bytes done before.
        before: u64,
        /// Bytes done now.
        after: u64,
        /// Bytes in all.
        total: u64,
    },
    /// A transfer is done, and its report does not say what one of its hops moved.
    #[error("transfer {transfer} is done, and its report does not have what hop {hop} moved")]
    Untold {
        /// The transfer.
        transfer: usize,
        /// The hop.
        hop: usize,
    },
    /// A transfer is done and its destination is wrong.
    #[error("transfer {transfer}: byte {byte} of its destination is {is:#04x}, not {should:#04x}")]
    WrongBytes {
        /// The transfer.
        transfer: usize,
        /// The first wrong byte.
        byte: usize,
        /// What is there.
        is: u8,
        /// What belongs there.
        should: u8,
    },
    /// Memory changed after its transfer had ended.
    #[error("byte {byte} of an instance of transfer {transfer} changed after its end")]
    TouchedAfterEnd {
        /// The transfer.
        transfer: usize,
        /// The first such byte.
        byte: usize,
    },
    /// Nothing more can happen, or the time limit passed, and transfers have not ended.
    #[error("transfer {transfer} does not end{waits}")]
    Stuck {
        /// The first such transfer.
        transfer: usize,
        /// What all of them wait for.
        waits: Waits,
    },
    /// An engine announced the end of a transfer that nobody submitted to it.
    #[error("an engine announced the end of a transfer that it was not given")]
    UnknownEvent,
    /// A node gave a peer up though it lived, spoke, and was heard.
    #[error("{by} gave {of} up for nothing")]
    GivenUp {
        /// Who did.
        by: NodeId,
        /// Whom.
        of: NodeId,
    },
    /// A request touches a region that was named in another life of its node.
    #[error("request {request:?} touches a region of an earlier life of {at}")]
    Stale {
        /// The request.
        request: RequestId,
        /// The region's node.
        at: NodeId,
    },
    /// A transfer that must end, with nothing in flight, has not.
    #[error("transfer {transfer} should have ended: nothing of it is in flight")]
    Overdue {
        /// The transfer.
        transfer: usize,
    },
    /// A node writes to another in a session that this one has not spoken in.
    #[error("request {request:?} writes to {to}, which has not let it in this session")]
    Unheard {
        /// The request.
        request: RequestId,
        /// Whose memory it writes to.
        to: NodeId,
    },
    /// A node wrote to another that no longer knows of the transfer.
    #[error("something of transfer {transfer} arrived at {at}, which has given its memory back")]
    Late {
        /// The transfer.
        transfer: usize,
        /// Where.
        at: NodeId,
    },
    /// The engine refused a transfer.
    #[error("the engine refused transfer {transfer}: {why}")]
    Refused {
        /// The transfer.
        transfer: usize,
        /// What it said.
        why: String,
    },
    /// The engine panicked.
    #[error("the engine panicked: {message}")]
    Panicked {
        /// What it said.
        message: String,
    },
}
