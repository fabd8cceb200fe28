//! The one error of the public API.

use engine::{CompileError, SubmitError};
use files::{FilesError, FilesErrorKind, Format};
use layout::{LayoutError, ParseError};
use model::{ChannelError, ChannelErrorKind, ModelError, TransferError};
use planner::PlanError;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// What two instances of a copy disagree on.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Mismatch {
    /// A dimension that one of them lacks.
    #[error("only one side has a dimension `{name}`")]
    Dim {
        /// The dimension.
        name: String,
    },
    /// A dimension whose boxes differ in extent.
    #[error("dimension `{name}` has {src} indices in the source and {dst} in the destination")]
    Extent {
        /// The dimension.
        name: String,
        /// The extent of the source's box.
        src: u64,
        /// The extent of the destination's box.
        dst: u64,
    },
    /// A field that one of them lacks.
    #[error("only one side has {}", called(.name))]
    Field {
        /// The field.
        name: String,
    },
    /// A field whose types differ. A copy converts none.
    #[error("{} is {src} in the source and {dst} in the destination", called(.name))]
    Type {
        /// The field.
        name: String,
        /// The source's type and size.
        src: String,
        /// The destination's.
        dst: String,
    },
    /// A view that no strides express.
    #[error("the layout {layout} has no strides: a dimension is in blocks, or fields lie apart")]
    Strides {
        /// The layout.
        layout: String,
    },
}

/// An argument that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ArgumentError {
    /// The destination shares bytes with the source.
    #[error("the destination overlaps the source")]
    Overlap,
    /// The destination shares bytes with itself, or has stride 0.
    #[error("the destination can't be written to: {0}")]
    Destination(LayoutError),
    /// The destination was wrapped for reading, or is a file opened for reading.
    #[error("the destination is read-only")]
    ReadOnly,
    /// No memory of that name.
    #[error("no memory `{name}`; there are {}", .there.join(", "))]
    NoMemory {
        /// The name.
        name: String,
        /// The names that there are.
        there: Vec<String>,
    },
    /// Devices by a name that means none.
    #[error("`{given}` names no accelerators; there are `gpu`, `all` and `none`")]
    Accelerators {
        /// What was given.
        given: String,
    },
    /// Devices of CUDA by a name that means none.
    #[error("`{given}` names no devices of CUDA; there are `all`, `none` and a driver's path")]
    Cuda {
        /// What was given.
        given: String,
    },
    /// A memory that holds no instances of this sort, a disk for `empty` for example.
    #[error("`{name}` is not host memory")]
    NotHost {
        /// The memory.
        name: String,
    },
    /// No dimension of that name.
    #[error("no dimension `{name}`")]
    NoDim {
        /// The name.
        name: String,
    },
    /// More bytes than an instance has.
    #[error("{given} bytes for an instance of {has}")]
    Bytes {
        /// How many were given.
        given: u64,
        /// How many there are.
        has: u64,
    },
    /// What no other node may read: it was neither published nor lent, or is not any more.
    #[error("it is not open to other nodes")]
    NotOpen,
    /// What another node asked for makes no sense.
    #[error("the question makes no sense")]
    Question,
    /// More than a node takes checksums of at once.
    #[error("checksums of {bytes} B at once, where {most} are the most")]
    TooMuchAtOnce {
        /// How many bytes were asked for.
        bytes: u64,
        /// How many may be.
        most: u64,
    },
    /// Strides that reach outside of the memory that was given.
    #[error("the strides reach outside of the memory that they are for")]
    Outside,
    /// An address that is no device's memory.
    #[error(
        "no CUDA device of this machine has memory at {address:#x} (ISOMETRY_CUDA says which it opens)"
    )]
    NoDevice {
        /// The address.
        address: u64,
    },
    /// A device that is not opened.
    #[error("CUDA device {ordinal} is no memory of this machine (ISOMETRY_CUDA says which are)")]
    NoOrdinal {
        /// Its number.
        ordinal: i32,
    },
    /// A memory that has no addresses of a device's.
    #[error("`{name}` is not memory of a CUDA device: it has no address that others could use")]
    NotAddressed {
        /// The memory.
        name: String,
    },
    /// A stream of something that is not opened.
    #[error("the stream is of no CUDA device of this machine, or of another context there")]
    NoStream,
    /// Something that files of this format have no use for.
    #[error("{what} is not for {format} files")]
    FileOption {
        /// What was given.
        what: &'static str,
        /// The format that the path names.
        format: Format,
    },
    /// A raw file without dimensions and element type.
    #[error("a raw file needs dimensions and an element type")]
    RawShape,
    /// A path with a zero byte, which no file has.
    #[error("the path {path:?} has a NUL in it")]
    NulInPath {
        /// The path.
        path: PathBuf,
    },
    /// Memory that holds buffers, and nothing else.
    #[error("`{name}` holds intermediate buffers only")]
    BuffersOnly {
        /// The memory.
        name: String,
    },
    /// Indices that no shard has from which an array is to come.
    #[error("no shard has {missing}")]
    NotCovered {
        /// Some of them, as a box.
        missing: String,
    },
    /// A shard that is an index list, not a box.
    #[error("a shard is a box, and dimension `{name}` of one is an index list")]
    ShardOfList {
        /// The dimension.
        name: String,
    },
    /// Something that only a node among others can do.
    #[error("the machine has joined no others; open it by joining them")]
    NotJoined,
    /// A name that nothing is published under.
    #[error("`{name}` is no name: letters, digits, `_` and `-`, 256 at most")]
    Name {
        /// The name.
        name: String,
    },
    /// What no node may be called.
    #[error(
        "a node can't be called `{name}`: letters, digits, `_` and `-`, and not `node` and a number"
    )]
    NodeName {
        /// The name.
        name: String,
    },
    /// A name that another node has, which is there.
    #[error(
        "the node of rank {by} is called `{name}` already; one that died is gone after some seconds"
    )]
    NodeNameTaken {
        /// The name.
        name: String,
        /// The rank of the other.
        by: u32,
    },
    /// A name that this node has published something under.
    #[error("this node has published `{name}` already")]
    Published {
        /// The name.
        name: String,
    },
    /// An instance that another node has, published by this one.
    #[error("only the node that an instance lies in may publish it")]
    NotHere,
    /// No node of that name.
    #[error("no node `{name}`; there are {there}")]
    NoNode {
        /// The name.
        name: String,
        /// Those that there are.
        there: String,
    },
    /// An instance or event of another machine.
    #[error("the instance belongs to another machine")]
    OtherMachine,
    /// A commit of something that is not a created file.
    #[error("nothing to commit: the instance is not in a file that the machine creates")]
    NothingToCommit,
    /// A second commit of a file.
    #[error("{} was committed or deleted before; a copy that covers all of it commits it", .path.display())]
    NotPending {
        /// The file.
        path: PathBuf,
    },
    /// A text that is no number of bytes.
    #[error(
        "`{text}` is no size, as 64MiB is (K, M, G and KiB, MiB, GiB of 1024, kB, MB, GB of 1000)"
    )]
    Size {
        /// The text.
        text: String,
    },
    /// More threads than a machine takes.
    #[error("{given} lanes; a machine takes 1 to {most}")]
    Lanes {
        /// How many were asked for.
        given: usize,
        /// The most that there may be.
        most: usize,
    },
}

/// An error of this crate.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum Error {
    /// Source and destination don't match.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// A layout, box or placement that can't be.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A layout's text that can't be read.
    #[error("`{text}`: {error}")]
    Parse {
        /// The text.
        text: String,
        /// What is wrong, and where.
        error: ParseError,
    },
    /// A value that breaks its invariant.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// No path, or none within the limits on memory.
    #[error("{told}")]
    Plan {
        /// Why there is none.
        error: PlanError,
        /// The same in words, memories by their names.
        told: String,
    },
    /// A plan that can't run on its instances.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// A request of the transfer failed.
    #[error("{error} (in memory `{memory}`)")]
    Transfer {
        /// The name of the memory that failed.
        memory: String,
        /// Hop and cause.
        error: TransferError,
    },
    /// The engine can't run the plan with the staging that there is.
    #[error("{told}")]
    Refused {
        /// Why not.
        error: SubmitError,
        /// The same in words, memories by their names.
        told: String,
    },
    /// A header that is wrong, or that can't say what was asked.
    #[error("{}: {error}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: FilesError,
    },
    /// A text that describes no element type.
    #[error(transparent)]
    Dtype(#[from] FilesError),
    /// The operating system refused something about a file.
    #[error("{}: {error}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        error: Arc<io::Error>,
    },
    /// Another node could not open a file, or make one.
    #[error("{node}:{}: {told}", .path.display())]
    FarFile {
        /// The name of the node.
        node: String,
        /// The file there.
        path: PathBuf,
        /// Whose mistake that node says it is: [`ErrorKind::Io`] where it does not serve the file.
        kind: ErrorKind,
        /// What its operating system said, by number.
        os_error: Option<i32>,
        /// What is wrong, in its words.
        told: String,
    },
    /// Another node could not read what lies there.
    #[error("{node} can't read it: {told}")]
    Far {
        /// Which.
        node: model::NodeId,
        /// Whose mistake that node says it is.
        kind: ErrorKind,
        /// What is wrong, in its words.
        told: String,
    },
    /// Two instances that should hold the same.
    #[error("the two differ in {}", in_words(.part))]
    Differs {
        /// Where: positions in the selected box of the source, dimension by dimension, of entries that
        /// are not all equal.
        part: Vec<(String, std::ops::Range<u64>)>,
    },
    /// The operating system has no threads or descriptors left.
    #[error("{what}: {error}")]
    Resource {
        /// What was asked for.
        what: String,
        /// What it said.
        error: Arc<io::Error>,
    },
    /// A channel or a memory refused something outside of a transfer.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// An argument that can't be used.
    #[error(transparent)]
    Argument(#[from] ArgumentError),
    /// The transfer was cancelled.
    #[error("the transfer was cancelled")]
    Cancelled,
    /// The transfer's deadline passed, or a wait's timeout.
    #[error("the time is over")]
    TimedOut,
    /// The machine is closed.
    #[error("the machine is closed")]
    Closed,
    /// Nodes that could not join each other, or that did not meet at a barrier.
    #[error("{0}")]
    Nodes(Arc<fabric::Error>),
    /// A copy that other nodes can't be told of: of too many index lists or fields.
    #[error("other nodes can't be told of the copy: {0}")]
    Untellable(Arc<wire::WireError>),
    /// A node that says of itself what can't be.
    #[error("{node} says of itself what can't be: {why}")]
    Introduction {
        /// Which.
        node: model::NodeId,
        /// What is wrong.
        why: String,
    },
    /// The process forked after the machine was opened: its threads did not come along.
    #[error("the machine was opened before a fork; open one in this process")]
    Forked,
    /// As many transfers are known as the machine keeps.
    #[error("too many transfers at once")]
    Busy,
}

fn in_words(part: &[(String, std::ops::Range<u64>)]) -> String {
    let range =
        |(name, at): &(String, std::ops::Range<u64>)| format!("{name} {}..{}", at.start, at.end);
    part.iter().map(range).collect::<Vec<_>>().join(", ")
}

/// What sort of mistake an [`Error`](enum@Error) is: one for each exception of Python's tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ErrorKind {
    /// Instances that don't match, or a layout that can't be.
    Layout,
    /// No path.
    Plan,
    /// A failed transfer.
    Transfer,
    /// A file that is not what it should be.
    FileFormat,
    /// The other node is gone.
    PeerLost,
    /// Cancelled.
    Cancelled,
    /// Out of time.
    Timeout,
    /// An argument that can't be used.
    Argument,
    /// The operating system refused.
    Io,
    /// The operating system has no threads or descriptors left.
    Resource,
    /// The machine can't be used any more, or not in this process.
    State,
}

impl Error {
    /// Whose mistake it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Mismatch(_) | Error::Layout(_) | Error::Parse { .. } | Error::Model(_) => {
                ErrorKind::Layout
            }
            Error::Plan { .. }
            | Error::Compile(_)
            | Error::Refused { .. }
            | Error::Untellable(_) => ErrorKind::Plan,
            Error::Transfer { error, .. } => match error.cause.kind {
                ChannelErrorKind::PeerLost => ErrorKind::PeerLost,
                _ => ErrorKind::Transfer,
            },
            Error::File { error, .. } | Error::Dtype(error) => match error.kind() {
                FilesErrorKind::Format => ErrorKind::FileFormat,
                FilesErrorKind::Layout => ErrorKind::Layout,
                FilesErrorKind::Argument => ErrorKind::Argument,
            },
            Error::Io { .. } | Error::Channel(_) => ErrorKind::Io,
            Error::FarFile { kind, .. } | Error::Far { kind, .. } => *kind,
            Error::Differs { .. } => ErrorKind::Transfer,
            Error::Resource { .. } => ErrorKind::Resource,
            Error::Argument(_) => ErrorKind::Argument,
            Error::Cancelled => ErrorKind::Cancelled,
            Error::TimedOut => ErrorKind::Timeout,
            Error::Nodes(error) => kind_of_nodes(error),
            Error::Closed | Error::Forked | Error::Busy | Error::Introduction { .. } => {
                ErrorKind::State
            }
        }
    }

    /// Whether the same call may succeed later, unchanged.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Transfer { error, .. } => error.cause.is_retryable(),
            _ => matches!(self, Error::TimedOut | Error::Busy | Error::Resource { .. }),
        }
    }

    pub(crate) fn io(path: impl Into<PathBuf>, error: io::Error) -> Self {
        Error::Io { path: path.into(), error: Arc::new(error) }
    }

    pub(crate) fn resource(what: impl Into<String>, error: io::Error) -> Self {
        Error::Resource { what: what.into(), error: Arc::new(error) }
    }

    pub(crate) fn nodes(error: fabric::Error) -> Self {
        Error::Nodes(Arc::new(error))
    }

    /// What a file's channel refused, as an error about the file at `path` where the operating
    /// system has a number for it.
    pub(crate) fn of_file(path: &Path, error: ChannelError) -> Self {
        match error.os_error {
            Some(number) => Error::io(path, io::Error::from_raw_os_error(number)),
            None => Error::Channel(error),
        }
    }
}

fn kind_of_nodes(error: &fabric::Error) -> ErrorKind {
    match error.kind() {
        fabric::ErrorKind::Usage => ErrorKind::Argument,
        fabric::ErrorKind::PeerLost => ErrorKind::PeerLost,
        fabric::ErrorKind::Timeout => ErrorKind::Timeout,
        fabric::ErrorKind::Io => ErrorKind::Io,
        _ if matches!(error, fabric::Error::Missing { .. }) => ErrorKind::Timeout,
        _ => ErrorKind::State,
    }
}

/// A lone field has no name.
fn called(field: &str) -> String {
    if field.is_empty() { "the lone field".to_owned() } else { format!("field `{field}`") }
}
