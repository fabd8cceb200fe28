//! The tables of a rank and its memory, and the handlers of what ranks ask of each other.

use super::buckets::{Buckets, Work};
use super::hoses::{Hoses, Request};
use super::registration::Registration;
use super::run::{self, Run};
use super::settings::Settings;
use crate::active::{Call, Handlers};
use crate::conduit::{Conduit, Queue};
use crate::error::Error;
use crate::fabric::Fabric;
use crate::message::{Message, Payload};
use crate::remote::{answer, arguments, bytes_of, numbers};
use crate::segment::Segment;
use model::NodeId;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const PIN: u8 = 32;
const PINNED: u8 = 33;
const GIVE: u8 = 34;
const GIVEN: u8 = 35;
const MOVE: u8 = 36;
const MOVED: u8 = 37;

/// What is said where a system gives no number for why.
const NO_ERRNO: i32 = rustix::io::Errno::IO.raw_os_error();

/// What a rank knows. Neither lock is taken while the other is held, nor while anything is sent.
#[derive(Debug)]
pub(crate) struct State {
    hoses: Mutex<Hoses>,
    buckets: Mutex<Buckets>,
    registration: Arc<dyn Registration>,
    bucket_bytes: u64,
    /// The peers that the tables know to be lost.
    lost: Vec<AtomicBool>,
    /// How many threads wait for this rank to need less of its own memory.
    waiting: AtomicU32,
}

/// One of those that wait for room.
pub(crate) struct Waiting<'a>(&'a AtomicU32);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    pub(crate) fn new(
        conduit: &dyn Conduit,
        settings: &Settings,
        registration: Arc<dyn Registration>,
    ) -> Result<State, Error> {
        let (me, size) = (conduit.place().0, conduit.founders());
        if me.0 >= size {
            return Err(Error::Late { peer: me, founders: size });
        }
        settings.check(size)?;
        let rules = settings.rules(size, conduit.capabilities().medium_bytes);
        let buckets = conduit.segment_bytes(me).div_ceil(settings.bucket_bytes);
        let limits = (0..size).map(|rank| if rank == me.0 { 0 } else { rules.share });
        Ok(State {
            hoses: Mutex::new(Hoses::new(me, size, rules)),
            buckets: Mutex::new(Buckets::new(settings.budget(buckets), buckets, limits)),
            registration,
            bucket_bytes: settings.bucket_bytes,
            lost: (0..size).map(|_| AtomicBool::new(false)).collect(),
            waiting: AtomicU32::new(0),
        })
    }

    pub(crate) fn hoses(&self) -> MutexGuard<'_, Hoses> {
        lock(&self.hoses)
    }

    pub(crate) fn buckets(&self) -> MutexGuard<'_, Buckets> {
        lock(&self.buckets)
    }

    /// Tells the tables of peers that were lost since.
    pub(crate) fn notice_lost(&self, fabric: &Fabric) {
        for (rank, is_known) in (0..).map(NodeId).zip(&self.lost) {
            if fabric.lost(rank).is_some() && !is_known.swap(true, Ordering::Relaxed) {
                self.hoses().handle_lost(rank);
                let mut buckets = self.buckets();
                let work = buckets.lose(rank);
                self.unpin(fabric.segment(), &work.unpin);
            }
        }
    }

    /// Sends what is to be sent.
    pub(crate) fn flush(&self, fabric: &Fabric) {
        loop {
            let next = self.hoses().poll_request();
            let Some((to, request)) = next else { return };
            if let Err(error) = send(fabric, to, &request) {
                log::debug!("a question that nobody hears: {error}");
                self.notice_lost(fabric);
            }
        }
    }

    /// Pins `run` for this rank itself, unless it needs too much already.
    pub(crate) fn hold_own(&self, memory: &Segment, run: Run) -> Option<io::Result<()>> {
        let mut buckets = self.buckets();
        let work = buckets.hold(run)?;
        Some(self.work(&mut buckets, memory, (None, &[run]), &work))
    }

    /// What this rank needs no more.
    pub(crate) fn let_go_own(&self, fabric: &Fabric, run: Run) {
        {
            let mut buckets = self.buckets();
            let work = buckets.let_go(run);
            self.unpin(fabric.segment(), &work.unpin);
        }
        if self.waiting.load(Ordering::Relaxed) > 0 {
            fabric.wake();
        }
    }

    /// While this lives, a thread is woken whenever this rank needs less of its own memory.
    pub(crate) fn wait_for_room(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(&self.waiting)
    }

    /// Does `work`, which makes it so that `pin` is pinned for a peer, or for this rank; none of that
    /// holds where it fails.
    fn work(
        &self,
        buckets: &mut Buckets,
        memory: &Segment,
        (peer, pin): (Option<NodeId>, &[Run]),
        work: &Work,
    ) -> io::Result<()> {
        self.unpin(memory, &work.unpin);
        for (i, &run) in work.pin.iter().enumerate() {
            let (at, bytes) = self.place(memory, run);
            if let Err(error) = self.registration.pin(memory, at, bytes) {
                let undone = buckets.undo(peer, pin, &work.pin[i..]);
                self.unpin(memory, &undone.unpin);
                return Err(error);
            }
        }
        Ok(())
    }

    fn unpin(&self, memory: &Segment, runs: &[Run]) {
        for &run in runs {
            let (at, bytes) = self.place(memory, run);
            if let Err(error) = self.registration.unpin(memory, at, bytes) {
                log::warn!("{bytes} B at {at} may still be pinned: {error}");
            }
        }
    }

    /// The bytes of a run; the last bucket may be cut short.
    fn place(&self, memory: &Segment, run: Run) -> (u64, u64) {
        let at = run.start * self.bucket_bytes;
        (at, (run.count * self.bucket_bytes).min(memory.bytes() - at))
    }

    /// Adds the handlers of what ranks ask of each other.
    pub(crate) fn handlers(self: &Arc<State>, handlers: Handlers) -> Handlers {
        type Run = fn(&State, &Call<'_>) -> Option<()>;
        let all: [(u8, Run); 6] = [
            (PIN, State::pin_asked),
            (PINNED, State::pinned),
            (GIVE, State::give_asked),
            (GIVEN, State::given),
            (MOVE, State::move_asked),
            (MOVED, State::moved),
        ];
        all.into_iter().fold(handlers, |handlers, (index, run)| {
            let state = Arc::clone(self);
            let run = move |call: &Call<'_>| {
                // Those that came later are in no table.
                let is_known = (call.source().0 as usize) < state.lost.len();
                if !is_known || run(&state, call).is_none() {
                    log::warn!("dropped what rank {} says of firehoses", call.source().0);
                }
            };
            handlers.with_any(index, Box::new(run))
        })
    }

    fn pin_asked(&self, call: &Call<'_>) -> Option<()> {
        let [miss, unpins] = numbers(call.args())?;
        let runs = run::read(bytes_of(call))?;
        let (unpin, pin) = runs.split_at_checked(usize::try_from(unpins).ok()?)?;
        self.notice_lost(call.fabric());
        let outcome = self.exchange(call.fabric().segment(), call.source(), (unpin, pin));
        let errno = outcome.map_or_else(|e| e.raw_os_error().unwrap_or(NO_ERRNO), |()| 0);
        answer(call, PINNED, &arguments([miss, errno as u64]), &[]);
        Some(())
    }

    fn exchange(
        &self,
        memory: &Segment,
        peer: NodeId,
        (unpin, pin): (&[Run], &[Run]),
    ) -> io::Result<()> {
        let mut buckets = self.buckets();
        // It has other settings, or is out of its mind: what it asks for would never be there.
        let invalid = || io::Error::from(rustix::io::Errno::INVAL);
        let work = buckets.exchange(peer, unpin, pin).map_err(|_| invalid())?;
        self.work(&mut buckets, memory, (Some(peer), pin), &work)
    }

    fn pinned(&self, call: &Call<'_>) -> Option<()> {
        let [miss, errno] = numbers(call.args())?;
        let outcome = if errno == 0 { Ok(()) } else { Err(errno as i32) };
        self.hoses().handle_pinned(call.source(), miss, outcome);
        Some(())
    }

    fn give_asked(&self, call: &Call<'_>) -> Option<()> {
        let [owner, buckets] = numbers(call.args())?;
        let owner_id = NodeId(u32::try_from(owner).ok()?);
        let (given, runs) = self.hoses().handle_give((call.source(), owner_id), buckets);
        let bytes: Vec<u8> = run::write(&runs).collect();
        answer(call, GIVEN, &arguments([owner, given]), &bytes);
        Some(())
    }

    fn given(&self, call: &Call<'_>) -> Option<()> {
        let [owner, buckets] = numbers(call.args())?;
        let owner = NodeId(u32::try_from(owner).ok()?);
        let runs = run::read(bytes_of(call))?;
        self.hoses().handle_given(call.source(), owner, (buckets, runs));
        Some(())
    }

    fn move_asked(&self, call: &Call<'_>) -> Option<()> {
        let [from, count, is_given] = numbers(call.args())?;
        let runs = run::read(bytes_of(call))?;
        let giver = (NodeId(u32::try_from(from).ok()?), count, is_given != 0);
        self.notice_lost(call.fabric());
        let got = {
            let mut buckets = self.buckets();
            let moved = buckets.transfer(call.source(), giver, &runs);
            let (got, work) = moved.unwrap_or_default();
            self.unpin(call.fabric().segment(), &work.unpin);
            got
        };
        answer(call, MOVED, &arguments([from, got]), &[]);
        Some(())
    }

    fn moved(&self, call: &Call<'_>) -> Option<()> {
        let [from, buckets] = numbers(call.args())?;
        let from = NodeId(u32::try_from(from).ok()?);
        self.hoses().handle_moved(call.source(), from, buckets);
        Some(())
    }
}

fn send(fabric: &Fabric, to: NodeId, request: &Request) -> Result<(), Error> {
    let (handler, args, runs) = match request {
        Request::Pin { miss, unpin, pin } => {
            (PIN, arguments([*miss, unpin.len() as u64]), [&**unpin, pin].concat())
        }
        Request::Give { owner, buckets } => {
            (GIVE, arguments([owner.0.into(), *buckets]), Vec::new())
        }
        Request::Move { from, buckets, unpin, is_given } => {
            (MOVE, arguments([from.0.into(), *buckets, (*is_given).into()]), unpin.clone())
        }
    };
    let bytes: Vec<u8> = run::write(&runs).collect();
    let message = Message { handler, args: &args, payload: Payload::of(&bytes), rest: &[] };
    fabric.send(to, Queue::Request, &message)
}
