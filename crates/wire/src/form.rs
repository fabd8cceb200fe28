//! The values that a packet is made of. What stands here is the format: a change of it is another
//! [`crate::VERSION`].

use crate::WireError;
use crate::programs::Programs;
use engine::{AskId, Asked, Commit, HopReport, Packet, PeerMessage, Program};
use layout::Part;
use model::{ChannelId, MemoryId, NodeId, Outcome, Place, Plan, Priority};
use serde::{Deserialize, Serialize, Serializer};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// [`Packet`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PacketForm<'a> {
    pub(crate) from: NodeId,
    to: NodeId,
    session: u64,
    to_session: u64,
    is_over: bool,
    asks: bool,
    ack: u64,
    #[serde(borrow)]
    body: Option<BodyForm<'a>>,
}

/// What a packet carries: its number, asker, life and serial of what it is about, the message.
#[derive(Debug, Serialize, Deserialize)]
struct BodyForm<'a>(u64, (NodeId, u32, u64), #[serde(borrow)] MessageForm<'a>);

/// [`PeerMessage`].
#[derive(Debug, Serialize, Deserialize)]
enum MessageForm<'a> {
    Reserve(#[serde(borrow)] AskedForm<'a>),
    Undo(#[serde(borrow)] AskedForm<'a>, Outcome),
    Reserved,
    Knock,
    Open(Option<Place>),
    Arrived(u64),
    Freed(u64),
    Stop(Outcome),
    Hush(Outcome),
    Quiet,
    Progress(u64),
    Ended(Outcome, Vec<HopForm>),
}

/// [`Asked`].
#[derive(Debug, Serialize, Deserialize)]
struct AskedForm<'a> {
    /// A [`ProgramForm`].
    #[serde(borrow, serialize_with = "byte_string")]
    program: Cow<'a, [u8]>,
    src: Place,
    dst: Place,
    priority: Priority,
    /// Whether what is committed must survive a power failure.
    commit: Option<bool>,
    lives: [Option<u32>; 2],
}

/// What a program is compiled from.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ProgramForm<'a> {
    pub(crate) plan: Cow<'a, Plan>,
    pub(crate) src: Cow<'a, Part>,
    pub(crate) dst: Cow<'a, Part>,
}

/// [`HopReport`], times in nanoseconds.
#[derive(Debug, Serialize, Deserialize)]
struct HopForm {
    channel: ChannelId,
    ends: [MemoryId; 2],
    bytes: u64,
    requests: u64,
    spent: [u64; 4],
}

impl<'a> From<&'a Packet> for PacketForm<'a> {
    fn from(packet: &'a Packet) -> Self {
        let body = packet.body.as_ref().map(|(number, ask, message)| {
            BodyForm(*number, (ask.asker, ask.life, ask.serial), message.into())
        });
        PacketForm {
            from: packet.from,
            to: packet.to,
            session: packet.session,
            to_session: packet.to_session,
            is_over: packet.is_over,
            asks: packet.asks,
            ack: packet.ack,
            body,
        }
    }
}

impl PacketForm<'_> {
    pub(crate) fn packet(self, programs: &mut Programs) -> Result<Packet, WireError> {
        let body = match self.body {
            Some(BodyForm(number, (asker, life, serial), message)) => {
                Some((number, AskId { asker, life, serial }, message.message(programs)?))
            }
            None => None,
        };
        Ok(Packet {
            from: self.from,
            to: self.to,
            session: self.session,
            to_session: self.to_session,
            is_over: self.is_over,
            asks: self.asks,
            ack: self.ack,
            body,
        })
    }
}

impl<'a> From<&'a PeerMessage> for MessageForm<'a> {
    fn from(message: &'a PeerMessage) -> Self {
        match message {
            PeerMessage::Reserve(asked) => MessageForm::Reserve((&**asked).into()),
            PeerMessage::Undo(asked, outcome) => {
                MessageForm::Undo((&**asked).into(), outcome.clone())
            }
            PeerMessage::Reserved => MessageForm::Reserved,
            PeerMessage::Knock => MessageForm::Knock,
            PeerMessage::Open(place) => MessageForm::Open(*place),
            PeerMessage::Arrived(bytes) => MessageForm::Arrived(*bytes),
            PeerMessage::Freed(bytes) => MessageForm::Freed(*bytes),
            PeerMessage::Stop(outcome) => MessageForm::Stop(outcome.clone()),
            PeerMessage::Hush(outcome) => MessageForm::Hush(outcome.clone()),
            PeerMessage::Quiet => MessageForm::Quiet,
            PeerMessage::Progress(bytes) => MessageForm::Progress(*bytes),
            PeerMessage::Ended(outcome, hops) => {
                MessageForm::Ended(outcome.clone(), hops.iter().map(HopForm::from).collect())
            }
        }
    }
}

impl MessageForm<'_> {
    fn message(self, programs: &mut Programs) -> Result<PeerMessage, WireError> {
        Ok(match self {
            MessageForm::Reserve(asked) => PeerMessage::Reserve(Arc::new(asked.asked(programs)?)),
            MessageForm::Undo(asked, outcome) => {
                PeerMessage::Undo(Arc::new(asked.asked(programs)?), outcome)
            }
            MessageForm::Reserved => PeerMessage::Reserved,
            MessageForm::Knock => PeerMessage::Knock,
            MessageForm::Open(place) => PeerMessage::Open(place),
            MessageForm::Arrived(bytes) => PeerMessage::Arrived(bytes),
            MessageForm::Freed(bytes) => PeerMessage::Freed(bytes),
            MessageForm::Stop(outcome) => PeerMessage::Stop(outcome),
            MessageForm::Hush(outcome) => PeerMessage::Hush(outcome),
            MessageForm::Quiet => PeerMessage::Quiet,
            MessageForm::Progress(bytes) => PeerMessage::Progress(bytes),
            MessageForm::Ended(outcome, hops) => {
                PeerMessage::Ended(outcome, hops.into_iter().map(HopReport::from).collect())
            }
        })
    }
}

impl<'a> From<&'a Asked> for AskedForm<'a> {
    fn from(asked: &'a Asked) -> Self {
        AskedForm {
            program: Cow::Owned(ProgramForm::from(&*asked.program).bytes()),
            src: asked.src,
            dst: asked.dst,
            priority: asked.priority,
            commit: asked.commit.map(|commit| commit.sync),
            lives: asked.lives,
        }
    }
}

impl AskedForm<'_> {
    fn asked(self, programs: &mut Programs) -> Result<Asked, WireError> {
        Ok(Asked {
            program: programs.of(&self.program)?,
            src: self.src,
            dst: self.dst,
            priority: self.priority,
            commit: self.commit.map(|sync| Commit { sync }),
            lives: self.lives,
        })
    }
}

impl<'a> From<&'a Program> for ProgramForm<'a> {
    fn from(program: &'a Program) -> Self {
        ProgramForm {
            plan: Cow::Borrowed(program.plan()),
            src: Cow::Borrowed(program.src()),
            dst: Cow::Borrowed(program.dst()),
        }
    }
}

impl ProgramForm<'_> {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("plain values in memory always serialize")
    }
}

impl From<&HopReport> for HopForm {
    fn from(hop: &HopReport) -> Self {
        let spent =
            [hop.busy, hop.waiting_for_input, hop.waiting_for_space, hop.waiting_for_channel];
        HopForm {
            channel: hop.channel,
            ends: [hop.from, hop.to],
            bytes: hop.bytes,
            requests: hop.requests,
            spent: spent.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
        }
    }
}

impl From<HopForm> for HopReport {
    fn from(hop: HopForm) -> Self {
        let [busy, input, space, channel] = hop.spent.map(Duration::from_nanos);
        HopReport {
            channel: hop.channel,
            from: hop.ends[0],
            to: hop.ends[1],
            bytes: hop.bytes,
            requests: hop.requests,
            busy,
            waiting_for_input: input,
            waiting_for_space: space,
            waiting_for_channel: channel,
            held_up_by: None,
        }
    }
}

fn byte_string<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_bytes(bytes)
}
