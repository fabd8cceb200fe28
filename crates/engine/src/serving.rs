//! What happens to requests: chosen by a worker, given out, taken back.

use crate::chain::{Issue, Readiness};
use crate::engine::Engine;
use crate::flight::{Errand, Flight};
use crate::lifecycle::hop_number;
use crate::report::Doing;
use crate::transfer::{Phase, Record, Role};
use crate::worker::{Entry, XdRef};
use model::{
    ChannelError, Completion, CopyWork, Outcome, Place, Request, TransferError, TransferId, Work,
};
use std::ops::Range;

impl Engine {
    /// The next request of a worker.
    pub(crate) fn next_request(&mut self, worker: usize) -> Option<Request> {
        if !self.flights.has_room() {
            return None;
        }
        let before = self.workers[worker].last_served();
        let Entry { xd, since, .. } = self.workers[worker].take(self.now)?;
        let record = self.table.get_mut(xd.transfer).expect("who is queued is known");
        let hop = usize::from(xd.hop);
        let (to, priority) = (record.written_by(hop), record.transfer.priority);
        self.workers[worker].counts.given_out(to, priority, self.now.since(since));
        let lane = &mut record.run.lanes[hop];
        lane.queued = None;
        lane.meter.served_after(self.now, before);
        lane.meter.turn(self.now, Doing::Busy);
        lane.meter.requests += 1;
        lane.in_flight += 1;
        record.in_flight += 1;
        let (work, errand) = match record.phase {
            Phase::Running => self.copy_work(xd),
            _ => (finish_work(record), Errand::Finish),
        };
        let id = self.flights.depart(Flight { transfer: xd.transfer, hop: xd.hop, errand });
        let channel = self.workers[worker].id();
        Some(Request { id, transfer: xd.transfer, hop: xd.hop, channel, work })
    }

    /// Makes the next request of a descriptor, and queues it again if it has another ready.
    fn copy_work(&mut self, xd: XdRef) -> (Work, Errand) {
        let hop = usize::from(xd.hop);
        let record = self.table.get_mut(xd.transfer).expect("who is queued is known");
        let issue = record.run.chain.issue(&record.transfer.program, hop);
        let issue = issue.expect("who is queued has a request ready");
        let (worker, standing) = (record.run.lanes[hop].worker, record.standing(hop));
        let is_last = hop + 1 == record.run.lanes.len();
        let result_bytes = if is_last { record.transfer.program.payload_bytes() } else { 0 };
        record.run.lanes[hop].served_bytes += issue.range.end - issue.range.start;
        let work = CopyWork {
            payload_bytes: issue.range.end - issue.range.start,
            src: self.place(xd, &issue, Side::Src),
            dst: self.place(xd, &issue, Side::Dst),
            list: issue.chunk.list,
            result_bytes,
        };
        self.workers[worker].served(&standing);
        self.refresh(xd.transfer, hop);
        (Work::Copy(work), Errand::Copy(issue.range))
    }

    /// Queues a descriptor that has become ready, and notes what it waits for otherwise.
    pub(crate) fn refresh(&mut self, id: TransferId, hop: usize) {
        let now = self.now;
        let Some(record) = self.table.get_mut(id) else { return };
        let readiness = match &record.role {
            Role::Share(share) if share.crosses(hop) && !share.is_open => Readiness::NeedsSpace,
            _ => record.run.chain.readiness(&record.transfer.program, hop),
        };
        let lane = &mut record.run.lanes[hop];
        let doing = if lane.in_flight > 0 { Doing::Busy } else { doing(readiness) };
        lane.meter.turn(now, doing);
        if let (Readiness::Ready(bytes), None) = (readiness, &lane.queued) {
            let worker = lane.worker;
            if lane.meter.requests == 0 {
                lane.served_bytes = self.workers[worker].floor_bytes();
            }
            let xd = XdRef { transfer: id, hop: hop_number(hop) };
            let entry = self.workers.push(worker, xd, &record.standing(hop), (bytes, now));
            record.run.lanes[hop].queued = Some(entry);
        }
    }

    /// Takes a request back.
    pub(crate) fn complete(&mut self, completion: Completion) {
        let Some(flight) = self.flights.arrive(completion.request) else { return };
        let (id, hop) = (flight.transfer, usize::from(flight.hop));
        let bytes = flight.errand.payload_bytes();
        let record = self.table.get_mut(id).expect("who has a request out is known");
        let to = record.written_by(hop);
        let lane = &mut record.run.lanes[hop];
        record.in_flight -= 1;
        lane.in_flight -= 1;
        self.workers.complete(lane.worker);
        self.workers[lane.worker].counts.ended(to, completion.result.is_ok().then_some(bytes));
        if lane.in_flight == 0 {
            lane.meter.turn(self.now, Doing::Nothing);
        }
        match flight.errand {
            Errand::Copy(range) => self.copy_done(id, hop, range, completion.result),
            Errand::Finish => self.finish_done(id, hop, completion.result),
        }
    }

    fn copy_done(
        &mut self,
        id: TransferId,
        hop: usize,
        range: Range<u64>,
        result: Result<(), ChannelError>,
    ) {
        let Some(record) = self.table.get_mut(id) else { return };
        let is_running = record.phase == Phase::Running;
        match result {
            Ok(()) if is_running => self.advance(id, hop, range),
            Err(cause) if is_running => {
                let failure = failure_of(record, hop, cause);
                self.stop(id, failure);
            }
            _ if record.in_flight == 0 => self.drained(id),
            _ => {}
        }
    }

    /// Moves the windows beside a hop, and wakes the hops beside it.
    fn advance(&mut self, id: TransferId, hop: usize, range: Range<u64>) {
        let Some(record) = self.table.get_mut(id) else { return };
        let bytes = range.end - range.start;
        let program = &record.transfer.program;
        let last = program.hops().len() - 1;
        record.run.chain.complete(program, hop, range);
        record.run.lanes[hop].meter.bytes += bytes;
        if hop == last {
            record.done_bytes += bytes;
        }
        let own = record.run.own.clone();
        let is_complete = record.run.chain.moved(program, own.end - 1).1;
        if matches!(record.role, Role::Share(_)) {
            self.tell_neighbours(id, hop);
            self.tell_asker(id);
        }
        if is_complete {
            return self.copied(id);
        }
        for neighbour in hop.saturating_sub(1).max(own.start)..(hop + 2).min(own.end) {
            self.refresh(id, neighbour);
        }
    }

    fn finish_done(&mut self, id: TransferId, hop: usize, result: Result<(), ChannelError>) {
        let Some(record) = self.table.get_mut(id) else { return };
        match (&record.phase, result) {
            (Phase::Committing, Ok(())) => self.end(id, Outcome::Done),
            (Phase::Committing, Err(cause)) => {
                let failure = failure_of(record, hop, cause);
                self.drain(id, failure);
            }
            // Why it was stopped says more than why the abort failed.
            (Phase::Aborting(outcome), _) => {
                let outcome = outcome.clone();
                self.end(id, outcome);
            }
            _ => {}
        }
    }

    fn place(&self, xd: XdRef, issue: &Issue, side: Side) -> Place {
        let record = self.table.get(xd.transfer).expect("who is queued is known");
        let hop = &record.transfer.program.hops()[usize::from(xd.hop)];
        let (ring, offset, instance, inside) = match side {
            Side::Src => (hop.input, issue.src_ring, record.transfer.src, issue.chunk.src_offset),
            Side::Dst => (hop.output, issue.dst_ring, record.transfer.dst, issue.chunk.dst_offset),
        };
        let base = ring.map_or(instance, |ring| {
            let start = record.run.rings[ring];
            Place { offset: start.offset + offset, ..start }
        });
        Place { offset: base.offset.wrapping_add_signed(inside), ..base }
    }
}

#[derive(Clone, Copy)]
enum Side {
    Src,
    Dst,
}

fn doing(readiness: Readiness) -> Doing {
    match readiness {
        Readiness::Exhausted => Doing::Nothing,
        Readiness::NeedsInput => Doing::Input,
        Readiness::NeedsSpace => Doing::Space,
        Readiness::Ready(_) => Doing::Channel,
    }
}

/// The commit of a transfer that has copied everything; the abort of one that has not.
fn finish_work(record: &Record) -> Work {
    let region = record.transfer.dst.region;
    match (&record.phase, record.transfer.commit) {
        (Phase::Committing, Some(commit)) => Work::Commit { region, sync: commit.sync },
        _ => Work::Abort { region },
    }
}

fn failure_of(record: &Record, hop: usize, cause: ChannelError) -> Outcome {
    let memory = record.transfer.program.hops()[hop].blamed(cause.kind);
    Outcome::Failed(TransferError { hop, memory, cause })
}
