//! What an engine gives out and takes back.

use crate::{ChannelError, ChannelId, CopyList, RegionId, RequestId, TransferId};

/// A position in a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Place {
    /// The region.
    pub region: RegionId,
    /// Bytes from its start; a copy's own offsets count from here.
    pub offset: u64,
}

/// Copies that run as one unit.
#[derive(Debug, Clone, PartialEq)]
pub struct CopyWork {
    /// What to copy, relative to `src` and `dst`.
    pub list: CopyList,
    /// The base of every source offset.
    pub src: Place,
    /// The base of every destination offset.
    pub dst: Place,
    /// The sum of the payloads of `list`.
    pub payload_bytes: u64,
    /// What the transfer brings to its destination in all, if `dst` is that; 0 if `dst` is a
    /// buffer, which is read at once. Large results are better written past the caches.
    pub result_bytes: u64,
}

/// What a request asks of its channel.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// Move bytes.
    Copy(CopyWork),
    /// Make what was written to `region` permanent: a file takes its name.
    Commit {
        /// The region that was written.
        region: RegionId,
        /// Whether it must survive a power failure.
        sync: bool,
    },
    /// Undo what was written to `region`: an uncommitted file is deleted.
    Abort {
        /// The region that was written.
        region: RegionId,
    },
}

/// A unit of direct data transfer on one channel (paper, section 3.3). Requests of one channel
/// start in the order in which the engine gave them out; completions may come in any order.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Names it in its completion.
    pub id: RequestId,
    /// The transfer it belongs to.
    pub transfer: TransferId,
    /// The hop of that transfer, from 0.
    pub hop: u16,
    /// The channel that runs it.
    pub channel: ChannelId,
    /// What to do.
    pub work: Work,
}

/// The end of a request: from here on the channel touches none of its memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    /// The request that ended.
    pub request: RequestId,
    /// How it ended. After an error the destination's bytes are unspecified.
    pub result: Result<(), ChannelError>,
}
