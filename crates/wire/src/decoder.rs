//! From bytes to packets.

use crate::form::PacketForm;
use crate::programs::Programs;
use crate::{MAX_PACKET_BYTES, VERSION, WireError};
use engine::Packet;
use model::NodeId;
use serde::Deserialize;

/// Reads what other nodes send, and keeps the programs that came lately, so that copies which come
/// again share one. A node needs one; its memory does not grow past a limit, whoever sends what.
#[derive(Debug, Default)]
pub struct Decoder {
    programs: Programs,
}

impl Decoder {
    /// One that keeps nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The packet that `bytes` are, which `from` has sent.
    ///
    /// # Errors
    /// [`WireError::TooLong`] past [`MAX_PACKET_BYTES`], or past [`crate::MAX_PROGRAM_BYTES`] for the
    /// program in it; [`WireError::Version`] for another [`VERSION`]; [`WireError::Malformed`] where
    /// bytes are missing, left over, or stand for what can't be; [`WireError::Sender`] where the
    /// packet says it is from another than `from`; [`WireError::TooManyFields`] for a copy of more
    /// than 4096; [`WireError::Program`] where what it asks for can't be compiled, or a request
    /// would fall into more pieces than 65,536 and one for each of the program's bytes.
    pub fn decode(&mut self, from: NodeId, bytes: &[u8]) -> Result<Packet, WireError> {
        if bytes.len() > MAX_PACKET_BYTES {
            return Err(WireError::TooLong { bytes: bytes.len(), most: MAX_PACKET_BYTES });
        }
        let (&version, rest) =
            bytes.split_first().ok_or(WireError::Malformed { why: "no byte" })?;
        if version != VERSION {
            return Err(WireError::Version { got: version });
        }
        let form: PacketForm = whole(rest)?;
        if form.from != from {
            return Err(WireError::Sender { from, named: form.from });
        }
        form.packet(&mut self.programs)
    }
}

/// The value that all of `bytes` are.
pub(crate) fn whole<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, WireError> {
    let (value, rest) = postcard::take_from_bytes(bytes)?;
    if rest.is_empty() { Ok(value) } else { Err(WireError::Malformed { why: "it goes on" }) }
}
