//! A party's side: its share of a transfer, its neighbours, and when it may give its memory back.

use super::{AskId, PeerMessage, Quarantined, Use, gone};
use crate::engine::Engine;
use crate::lifecycle::Step;
use crate::program::{Program, Stretch};
use crate::report::HopReport;
use crate::transfer::{Phase, Record, Role};
use crate::waits::Wait;
use model::{NodeId, Outcome, Place, TransferId};
use std::ops::Range;
use std::sync::Arc;

/// What the neighbour that writes here is known to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writer {
    /// It was told where, and writes.
    Free,
    /// It was asked to hush.
    Hushed,
    /// It is gone; the driver has not said that nothing from before this session arrives any more.
    Gone(u64),
    /// Nothing of it is under way.
    Quiet,
}

/// What a transfer between nodes has on this one.
#[derive(Debug)]
pub(crate) struct Share {
    pub(crate) name: AskId,
    stretch: Stretch,
    writer: Writer,
    /// The neighbour behind has said where to write.
    pub(crate) is_open: bool,
    /// The asker is gone: nobody is to hear of the end.
    is_orphan: bool,
    /// The neighbour behind wants to hear when nothing is under way.
    owes_quiet: bool,
    /// How much the neighbour before has brought, and how much of that it knows to be read.
    arrived: u64,
    told: u64,
    /// How much the neighbour behind has read.
    freed: u64,
    /// How much the asker knows to be done.
    reported: u64,
}

/// About so often the asker hears how far the last hop is.
const PROGRESS_STEPS: u64 = 32;

impl Share {
    pub(super) fn new(name: AskId, stretch: Stretch) -> Self {
        Share {
            name,
            stretch,
            writer: Writer::Quiet,
            is_open: false,
            is_orphan: false,
            owes_quiet: false,
            arrived: 0,
            told: 0,
            freed: 0,
            reported: 0,
        }
    }

    /// The ring into which the neighbour before writes; none where that is the destination.
    fn first_ring(&self, program: &Program) -> Option<usize> {
        let ring = self.stretch.hops.start.checked_sub(1)?;
        (self.stretch.before.is_some() && ring < program.rings().len()).then_some(ring)
    }

    /// The ring of the neighbour behind into which the last hop writes.
    fn last_ring(&self, program: &Program) -> Option<usize> {
        let hop = self.stretch.hops.end.checked_sub(1)?;
        (self.stretch.behind.is_some() && hop < program.rings().len()).then_some(hop)
    }

    /// Whether `hop` writes to another node.
    pub(crate) fn crosses(&self, hop: usize) -> bool {
        self.stretch.behind.is_some() && hop + 1 == self.stretch.hops.end
    }

    /// The hops that are its own.
    pub(super) fn own(&self) -> Range<usize> {
        self.stretch.hops.clone()
    }

    /// Of whom a share that stops waits to hear, before it gives its memory back.
    pub(crate) fn waits_to_leave(&self) -> Option<Wait> {
        let node = self.stretch.before?;
        match self.writer {
            Writer::Hushed => Some(Wait::Quiet { node }),
            Writer::Gone(_) => Some(Wait::CutOff { node }),
            Writer::Free | Writer::Quiet => None,
        }
    }

    /// Those with whom the share has to do.
    pub(super) fn partners(&self) -> impl Iterator<Item = NodeId> + use<> {
        [Some(self.name.asker), self.stretch.before, self.stretch.behind].into_iter().flatten()
    }
}

impl Engine {
    /// A share has its rings: what stays on this node may run.
    pub(crate) fn reserved(&mut self, id: TransferId) {
        let Some(record) = self.table.get(id) else { return };
        let Role::Share(share) = &record.role else { return };
        let (name, behind) = (share.name, share.stretch.behind);
        self.say(name.asker, name, PeerMessage::Reserved);
        self.open(id);
        if let Some(behind) = behind {
            self.say(behind, name, PeerMessage::Knock);
        }
    }

    /// Tells the neighbour before where to write.
    fn open(&mut self, id: TransferId) {
        let Some(record) = self.table.get_mut(id) else { return };
        let Role::Share(share) = &mut record.role else { return };
        let ring = share.first_ring(&record.transfer.program);
        let (name, place) = (share.name, ring.map(|ring| record.run.rings[ring]));
        if let Some(before) = share.stretch.before {
            share.writer = Writer::Free;
            self.say(before, name, PeerMessage::Open(place));
        }
    }

    pub(super) fn handle_knock(&mut self, from: NodeId, name: AskId) {
        let Some((id, record)) = self.share_mut(name) else { return };
        let Role::Share(share) = &record.role else { return };
        if share.stretch.before == Some(from) && record.phase == Phase::Running {
            self.open(id);
        }
    }

    pub(super) fn handle_open(&mut self, from: NodeId, name: AskId, place: Option<Place>) {
        let Some((id, record)) = self.share_mut(name) else { return };
        let Role::Share(share) = &mut record.role else { return };
        let ring = share.last_ring(&record.transfer.program);
        let fits = |ring: usize, place: Place| {
            let bytes = record.transfer.program.rings()[ring].bytes();
            place.offset.checked_add(bytes).is_some()
        };
        let is_place = match (ring, place) {
            (Some(ring), Some(place)) => fits(ring, place),
            (ring, place) => ring.is_none() && place.is_none(),
        };
        let is_sane = share.stretch.behind == Some(from) && is_place;
        if !is_sane || record.phase != Phase::Running || share.is_open {
            return;
        }
        share.is_open = true;
        let hop = share.stretch.hops.end - 1;
        if let (Some(ring), Some(place)) = (ring, place) {
            record.run.rings[ring] = place;
        }
        self.refresh(id, hop);
    }

    pub(super) fn handle_arrived(&mut self, from: NodeId, name: AskId, bytes: u64) {
        let Some((id, record)) = self.share_mut(name) else { return };
        let total = record.transfer.program.payload_bytes();
        if !matches!(record.phase, Phase::Running | Phase::Draining(_)) {
            return;
        }
        let Role::Share(share) = &mut record.role else { return };
        if share.stretch.before != Some(from) || bytes <= share.arrived || bytes > total {
            return;
        }
        let more = bytes - share.arrived;
        share.arrived = bytes;
        if bytes == total {
            share.writer = Writer::Quiet;
        }
        let ring = share.first_ring(&record.transfer.program);
        let (first, is_empty) = (share.stretch.hops.start, share.stretch.hops.is_empty());
        match record.phase {
            Phase::Running => {
                if let Some(ring) = ring {
                    record.run.chain.arrived(ring, bytes);
                }
                if is_empty && bytes == total {
                    record.done_bytes = total;
                    self.copied(id);
                } else if !is_empty {
                    self.refresh(id, first);
                }
            }
            Phase::Draining(_) => self.try_drained(id),
            _ => {}
        }
        if let Some(peers) = &mut self.peers {
            *peers.arrived_bytes.entry(from).or_default() += more;
        }
    }

    pub(super) fn handle_freed(&mut self, from: NodeId, name: AskId, bytes: u64) {
        let Some((id, record)) = self.share_mut(name) else { return };
        let program = Arc::clone(&record.transfer.program);
        let Role::Share(share) = &mut record.role else { return };
        let Some(ring) = share.last_ring(&program) else { return };
        let is_sane = share.freed < bytes && bytes <= record.run.chain.written(ring);
        if share.stretch.behind != Some(from) || !is_sane || record.phase != Phase::Running {
            return;
        }
        share.freed = bytes;
        record.run.chain.freed(&program, ring, bytes);
        let hop = share.stretch.hops.end - 1;
        self.refresh(id, hop);
    }

    /// Tells the asker how far the last hop is, if that is a good deal further than he knows.
    pub(crate) fn tell_asker(&mut self, id: TransferId) {
        let Some(record) = self.table.get_mut(id) else { return };
        let step = record.transfer.program.payload_bytes().div_ceil(PROGRESS_STEPS);
        let Role::Share(share) = &mut record.role else { return };
        if record.done_bytes >= share.reported + step {
            share.reported = record.done_bytes;
            let (name, done) = (share.name, share.reported);
            self.say(name.asker, name, PeerMessage::Progress(done));
        }
    }

    /// Tells the neighbours what one of the share's hops has moved.
    pub(crate) fn tell_neighbours(&mut self, id: TransferId, hop: usize) {
        let Some(record) = self.table.get_mut(id) else { return };
        let program = &record.transfer.program;
        let Role::Share(share) = &mut record.role else { return };
        let (name, chain) = (share.name, &record.run.chain);
        let mut notes = Vec::new();
        if let Some(behind) = share.stretch.behind.filter(|_| share.crosses(hop)) {
            let (done, is_all) = chain.moved(program, hop);
            if share.last_ring(program).is_some() || is_all {
                notes.push((behind, PeerMessage::Arrived(done)));
            }
        }
        if let (Some(before), Some(ring)) = (share.stretch.before, share.first_ring(program))
            && hop == share.stretch.hops.start
            && chain.read(ring) > share.told
        {
            share.told = chain.read(ring);
            notes.push((before, PeerMessage::Freed(share.told)));
        }
        for (node, message) in notes {
            self.say(node, name, message);
        }
    }

    pub(super) fn handle_stop(&mut self, name: AskId, outcome: Outcome) {
        if let Some((id, _)) = self.share_mut(name) {
            self.stop(id, outcome);
        }
    }

    /// The neighbour behind stops. Who knows nothing of the transfer writes nothing: should it be
    /// asked later, it will find nobody who lets it.
    pub(super) fn handle_hush(&mut self, from: NodeId, name: AskId, outcome: Outcome) {
        let Some((id, record)) = self.share_mut(name) else {
            return self.say(from, name, PeerMessage::Quiet);
        };
        let Role::Share(share) = &mut record.role else { return };
        if share.stretch.behind != Some(from) {
            return;
        }
        share.owes_quiet = true;
        self.stop(id, outcome);
        self.try_drained(id);
    }

    pub(super) fn handle_quiet(&mut self, from: NodeId, name: AskId) {
        let Some((id, record)) = self.share_mut(name) else {
            return self.unquarantine(|q| q.writer == from && q.name == name && q.is_hushed);
        };
        let Role::Share(share) = &mut record.role else { return };
        // One that was not asked to hush is not quiet because it says so, and one that is gone only
        // once it is cut off.
        if share.stretch.before == Some(from) && share.writer == Writer::Hushed {
            share.writer = Writer::Quiet;
            self.try_drained(id);
        }
    }

    /// Whether a share of which nothing is in flight may give its memory back. Says that it is
    /// quiet, and has the neighbour before hush, where that is needed.
    pub(crate) fn may_leave(&mut self, id: TransferId) -> bool {
        let Some(record) = self.table.get_mut(id) else { return false };
        let Phase::Draining(outcome) = &record.phase else { return true };
        let outcome = outcome.clone();
        let Role::Share(share) = &mut record.role else { return true };
        let (name, before, behind) = (share.name, share.stretch.before, share.stretch.behind);
        let owes_quiet = std::mem::take(&mut share.owes_quiet);
        let hushes = share.writer == Writer::Free;
        if hushes {
            share.writer = Writer::Hushed;
        }
        let is_quiet = share.writer == Writer::Quiet;
        let kept = quarantine(record, id);
        let may_leave = is_quiet || kept.is_some();
        if let Some(peers) = &mut self.peers {
            peers.quarantine.extend(kept);
        }
        if let Some(behind) = behind.filter(|_| owes_quiet) {
            self.say(behind, name, PeerMessage::Quiet);
        }
        if let Some(before) = before.filter(|_| hushes) {
            self.say(before, name, PeerMessage::Hush(outcome));
        }
        may_leave
    }

    /// A share has ended: its asker hears of it, nobody else.
    pub(crate) fn end_share(&mut self, id: TransferId, outcome: Outcome) {
        let Some(record) = self.table.get_mut(id) else { return };
        let Role::Share(share) = &record.role else { return };
        let (name, is_orphan, own) = (share.name, share.is_orphan, share.own());
        // Whom its hops waited for are this node's transfers.
        let told = |hop| HopReport { held_up_by: None, ..hop };
        let reports = record.report(self.now).hops.drain(own).map(told).collect();
        let awaited = share.stretch.behind.filter(|_| share.owes_quiet);
        let partners: Vec<NodeId> = share.partners().collect();
        let Some(peers) = &mut self.peers else { return };
        peers.shares.remove(&name);
        for node in partners {
            if !peers.is_me(node) {
                peers.sessions.release(self.now, node, Use::Share(name));
            }
        }
        if let Some(behind) = awaited {
            self.say(behind, name, PeerMessage::Quiet);
        }
        if !is_orphan {
            self.say(name.asker, name, PeerMessage::Ended(outcome, reports));
        }
    }

    /// A peer is gone: a share that it has to do with stops, and keeps what it may still write; unless all
    /// that was wanted of that one has arrived.
    pub(super) fn lose_partner(&mut self, node: NodeId, name: AskId, floor: u64) {
        let Some((id, record)) = self.share_mut(name) else { return };
        let failure = gone(&record.transfer.program, node);
        let total = record.transfer.program.payload_bytes();
        let Role::Share(share) = &mut record.role else { return };
        let is_wanted = name.asker == node || share.stretch.behind == Some(node);
        if !is_wanted && share.arrived > 0 && share.arrived == total {
            return;
        }
        if share.stretch.before == Some(node) && share.writer != Writer::Quiet {
            share.writer = Writer::Gone(floor);
        }
        if share.stretch.behind == Some(node) {
            share.owes_quiet = false;
        }
        share.is_orphan |= name.asker == node;
        self.stop(id, failure);
        // It may have been stopping already, and waited for that peer alone.
        self.try_drained(id);
    }

    /// Nothing of `node` from before session `floor` arrives any more.
    pub(crate) fn disconnected(&mut self, node: NodeId, floor: u64) {
        let names = self.peers.as_ref().map(|peers| peers.shares.keys().copied().collect());
        let names: Vec<AskId> = names.unwrap_or_default();
        self.unquarantine(|q| q.writer == node && q.floor <= floor);
        for name in names {
            let Some((id, record)) = self.share_mut(name) else { continue };
            let Role::Share(share) = &mut record.role else { continue };
            let is_cut = matches!(share.writer, Writer::Gone(since) if since <= floor);
            if share.stretch.before == Some(node) && is_cut {
                share.writer = Writer::Quiet;
                self.try_drained(id);
            }
        }
    }

    /// Has a writer that is heard again hush, where it may still write to rings of before.
    pub(super) fn hush_quarantined(&mut self, writer: NodeId) {
        let Some(peers) = &mut self.peers else { return };
        let is_heard = peers.sessions.numbers(writer).is_some_and(|(_, theirs)| theirs != 0);
        let asked = |q: &&mut Quarantined| is_heard && q.writer == writer && !q.is_hushed;
        let names = peers.quarantine.iter_mut().filter(asked).map(|q| {
            q.is_hushed = true;
            q.name
        });
        for name in names.collect::<Vec<_>>() {
            self.say(writer, name, PeerMessage::Hush(Outcome::Cancelled));
        }
    }

    /// Gives rings back that nobody writes any more.
    fn unquarantine(&mut self, is_free: impl Fn(&Quarantined) -> bool) {
        let Some(peers) = &mut self.peers else { return };
        let all = std::mem::take(&mut peers.quarantine);
        let (free, kept): (Vec<_>, Vec<_>) = all.into_iter().partition(is_free);
        peers.quarantine = kept;
        for Quarantined { holder, grants, .. } in free {
            self.staging.release(holder, &grants);
            self.steps.push_back(Step::Admit);
        }
    }

    /// Goes on with a stopping share of which nothing is in flight.
    fn try_drained(&mut self, id: TransferId) {
        let is_drained = |r: &Record| r.in_flight == 0 && matches!(r.phase, Phase::Draining(_));
        if self.table.get(id).is_some_and(is_drained) {
            self.drained(id);
        }
    }

    fn share_mut(&mut self, name: AskId) -> Option<(TransferId, &mut Record)> {
        let id = *self.peers.as_ref()?.shares.get(&name)?;
        Some((id, self.table.get_mut(id)?))
    }
}

/// What a share that has drained had, where a peer that was given up may still write to the first of
/// it; a destination is no such thing.
fn quarantine(record: &mut Record, id: TransferId) -> Option<Quarantined> {
    let Role::Share(share) = &record.role else { return None };
    let (Writer::Gone(floor), Some(writer)) = (share.writer, share.stretch.before) else {
        return None;
    };
    share.first_ring(&record.transfer.program)?;
    let (name, holder) = (share.name, (record.turn(), id));
    let grants = std::mem::take(&mut record.grants);
    Some(Quarantined { name, writer, is_hushed: false, floor, holder, grants })
}
