//! What engines of several nodes say to each other, as bytes.
//!
//! **Hazard.** Whoever holds the cluster's key may send anything: a length that lies, a number that
//! overflows where it is multiplied, blocks so odd that their copies fill the memory. **Guarantee.**
//! Whatever the bytes, [`Decoder::decode`] ends soon, takes memory in proportion to them and to named
//! limits, and never panics; what it gives no constructor would refuse, and an engine that is handed
//! it neither overflows nor grows without bound. Channels, memories and regions may be any: the
//! engine refuses those that it does not have. **Structure.** A packet is a version, then plain
//! values in postcard's format. A program travels as its plan and its two parts, in a byte
//! string of its own, and is compiled again where it arrives; since the same copies come again and
//! again, the [`Decoder`] keeps those that came lately, by these very bytes.
#![forbid(unsafe_code)]

mod decoder;
mod error;
mod form;
mod programs;

pub use decoder::Decoder;
pub use error::{WireError, WireErrorKind};

use engine::{Packet, Program};
use form::{PacketForm, ProgramForm};
use programs::Programs;

/// The first byte of every packet. Who speaks another version is not understood.
pub const VERSION: u8 = 2;

/// The longest packet that is read, in bytes: index lists are the only thing that makes one long.
pub const MAX_PACKET_BYTES: usize = 64 << 20;

/// The most bytes of a packet that a program takes; the rest of it fits in what this leaves.
pub const MAX_PROGRAM_BYTES: usize = MAX_PACKET_BYTES - (1 << 20);

/// The bytes of `packet`. What [`engine::HopReport::held_up_by`] names is its own node's affair, and
/// stays there; of its times nobody is told more than 2^64 ns.
///
/// It has an answer for any packet; one that asks for a program which [`check`] refuses is refused
/// by whoever gets it.
#[must_use]
pub fn encode(packet: &Packet) -> Vec<u8> {
    let form = PacketForm::from(packet);
    postcard::to_extend(&form, vec![VERSION]).expect("plain values in memory always serialize")
}

/// Whether other nodes take `program`: to be asked once, before a transfer of it is submitted, since
/// a packet that is refused is sent again until its peer is given up. It is compiled once more.
///
/// # Errors
/// [`WireError::TooLong`] past [`MAX_PROGRAM_BYTES`], which only index lists reach;
/// [`WireError::TooManyFields`]; [`WireError::Program`] where a request falls into too many pieces;
/// [`WireError::Malformed`] where an address lies 2^61 bytes or more from its instance's base, or
/// the plan has a layout of more than 64 components.
pub fn check(program: &Program) -> Result<(), WireError> {
    Programs::default().of(&ProgramForm::from(program).bytes()).map(|_| ())
}
