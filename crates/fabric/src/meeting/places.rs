//! Who has called, by rank and lane.

use super::{Joined, Lane, Met};
use crate::error::Error;
use crate::locks::lock;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A place for each lane of each rank that has called.
#[derive(Debug)]
pub(super) struct Places<G> {
    lanes: u32,
    guests: Mutex<BTreeMap<u32, Guest<G>>>,
}

#[derive(Debug)]
struct Guest<G> {
    lanes: Vec<Place<G>>,
    /// When it first called.
    since: Instant,
}

#[derive(Debug)]
enum Place<G> {
    Free,
    /// By one that is about to give and take, or that was taken out.
    Taken,
    Filled(Joined<G>),
}

impl<G> Guest<G> {
    fn is_full(&self) -> bool {
        self.lanes.iter().all(|place| matches!(place, Place::Filled(_)))
    }

    /// Takes out what there is; nobody takes these places again.
    fn close(&mut self) -> Vec<Joined<G>> {
        let all = self.lanes.iter_mut().map(|place| std::mem::replace(place, Place::Taken));
        let filled = |place| if let Place::Filled(joined) = place { Some(joined) } else { None };
        all.filter_map(filled).collect()
    }
}

impl<G> Places<G> {
    pub(super) fn new(lanes: u32) -> Places<G> {
        Places { lanes, guests: Mutex::default() }
    }

    /// # Errors
    /// [`Error::Refused`] where somebody has it, or had.
    pub(super) fn take(&self, (rank, lane): Lane) -> Result<(), Error> {
        let mut guests = lock(&self.guests);
        let guest = guests.entry(rank).or_insert_with(|| Guest {
            lanes: (0..self.lanes).map(|_| Place::Free).collect(),
            since: Instant::now(),
        });
        match &mut guest.lanes[lane as usize] {
            place @ Place::Free => {
                *place = Place::Taken;
                Ok(())
            }
            _ => Err(Error::Refused { rank, why: "has joined already" }),
        }
    }

    /// Gives a place back that was taken.
    pub(super) fn free(&self, lane: Lane) {
        self.set(lane, Place::Free);
    }

    pub(super) fn fill(&self, lane: Lane, joined: Joined<G>) {
        self.set(lane, Place::Filled(joined));
    }

    fn set(&self, (rank, lane): Lane, place: Place<G>) {
        if let Some(guest) = lock(&self.guests).get_mut(&rank) {
            guest.lanes[lane as usize] = place;
        }
    }

    pub(super) fn is_full(&self, rank: u32) -> bool {
        lock(&self.guests).get(&rank).is_some_and(Guest::is_full)
    }

    /// Takes a rank out whose lanes are all there.
    pub(super) fn take_out(&self, rank: u32) -> Option<Vec<Joined<G>>> {
        let mut guests = lock(&self.guests);
        Some(guests.get_mut(&rank).filter(|guest| guest.is_full())?.close())
    }

    /// Hangs up on ranks that have not brought all their lanes in so much time; returns when that is to
    /// be done next.
    pub(super) fn expire(&self, most: Duration) -> Duration {
        let mut next = Duration::MAX;
        for guest in lock(&self.guests).values_mut() {
            if guest.lanes.iter().all(|place| matches!(place, Place::Taken)) {
                continue;
            }
            match most.checked_sub(guest.since.elapsed()) {
                Some(left) => next = next.min(left),
                None => drop(guest.close()),
            }
        }
        next
    }

    /// All ranks whose lanes are all there.
    pub(super) fn into_full(self) -> Met<G> {
        let guests = self.guests.into_inner().unwrap_or_else(PoisonError::into_inner);
        let full = guests.into_iter().filter(|(_, guest)| guest.is_full());
        full.map(|(rank, mut guest)| (rank, guest.close())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meeting::Socket;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn joined() -> Joined<u32> {
        let (unix, stream) = (AddressFamily::UNIX, SocketType::STREAM);
        let (socket, _) = socketpair(unix, stream, SocketFlags::CLOEXEC, None).unwrap();
        Joined { socket: Socket(socket), gift: 7, name: Vec::new() }
    }

    #[test]
    fn a_rank_is_taken_out_once_all_its_lanes_are_there() {
        let places = Places::new(2);
        for lane in [0, 1] {
            assert!(places.take_out(5).is_none());
            places.take((5, lane)).unwrap();
            assert!(places.take((5, lane)).is_err(), "twice at once");
            places.free((5, lane));
            places.take((5, lane)).unwrap();
            places.fill((5, lane), joined());
        }
        assert!(places.is_full(5));
        assert_eq!(places.take_out(5).map(|lanes| lanes.len()), Some(2));
        assert!(places.take_out(5).is_none() && places.take((5, 0)).is_err());
        assert_eq!(places.expire(Duration::ZERO), Duration::MAX);
    }

    #[test]
    fn who_does_not_bring_all_lanes_in_time_never_does() {
        let places = Places::new(2);
        places.take((5, 0)).unwrap();
        places.fill((5, 0), joined());
        places.take((5, 1)).unwrap();
        assert!(places.expire(Duration::MAX) < Duration::MAX);
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(places.expire(Duration::ZERO), Duration::MAX);
        places.fill((5, 1), joined());
        assert!(places.take_out(5).is_none());
        // What was filled since goes too.
        places.expire(Duration::ZERO);
        assert!(places.into_full().is_empty());
    }
}
