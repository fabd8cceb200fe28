//! Requests that were given out and have not come back.

use model::{RequestId, TransferId};
use std::ops::Range;

/// Low bits of a request id that name its slot; the rest is a serial number, so that no id is
/// used twice. More requests are never out at once.
const SLOT_BITS: u32 = 24;

/// What a request does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Errand {
    /// It moves this range of the stream.
    Copy(Range<u64>),
    /// It commits or aborts the destination.
    Finish,
}

impl Errand {
    /// The payload that it moves.
    pub(crate) fn payload_bytes(&self) -> u64 {
        match self {
            Errand::Copy(range) => range.end - range.start,
            Errand::Finish => 0,
        }
    }
}

/// One request that is out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flight {
    pub(crate) transfer: TransferId,
    pub(crate) hop: u16,
    pub(crate) errand: Errand,
}

/// All requests that are out, by id.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    serial: u64,
    slots: Vec<Option<(RequestId, Flight)>>,
    vacant: Vec<u32>,
}

impl Flights {
    /// Whether another request may go out.
    pub(crate) fn has_room(&self) -> bool {
        !self.vacant.is_empty() || self.slots.len() < 1 << SLOT_BITS
    }

    /// Names a request.
    pub(crate) fn depart(&mut self, flight: Flight) -> RequestId {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("has_room was asked")
        });
        let id = RequestId(self.serial << SLOT_BITS | u64::from(slot));
        self.serial += 1;
        self.slots[slot as usize] = Some((id, flight));
        id
    }

    /// Takes a request back; `None` for an id that is not out.
    pub(crate) fn arrive(&mut self, id: RequestId) -> Option<Flight> {
        let slot = u32::try_from(id.0 & ((1 << SLOT_BITS) - 1)).ok()?;
        let place = self.slots.get_mut(slot as usize)?;
        let (_, flight) = place.take_if(|(named, _)| *named == id)?;
        self.vacant.push(slot);
        Some(flight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_comes_back_once_and_is_not_reused() {
        let mut flights = Flights::default();
        let transfer = TransferId { index: 1, generation: 2 };
        let flight = Flight { transfer, hop: 0, errand: Errand::Finish };
        let first = flights.depart(flight.clone());
        assert_eq!(flights.arrive(first), Some(flight.clone()));
        let second = flights.depart(flight.clone());
        assert_ne!(first, second);
        assert_eq!(flights.arrive(first), None);
        assert_eq!(flights.arrive(RequestId(77)), None);
        assert_eq!(flights.arrive(second), Some(flight));
    }
}
