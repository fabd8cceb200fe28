//! What a copy returns: the promise of its end.
//!
//! **Hazard.** A waiter sleeps through the end, or memory is given back before it. **Guarantee.**
//! The outcome is set under the lock that waiters look under, once, after the engine has said
//! that no channel touches the memory any more. **Structure.** [`Event`] is a handle; its
//! [`State`] is shared with the runtime, which tells it of each transfer's end.

use crate::Error;
use crate::report::{CopyReport, Direct};
use crate::runtime::Shared;
use model::{FenceId, Plan, TransferId};
use std::cell::Cell;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

type Callback = Box<dyn FnOnce(&Result<(), Error>) + Send>;

thread_local! {
    static IS_CALLING_BACK: Cell<bool> = const { Cell::new(false) };
}

/// The end of a copy, or of several, or of what a device's stream was asked before.
///
/// Clones are the same event. When the last is dropped the copy runs on; should it fail, its
/// error is logged. An event may be awaited by any executor, and waited for by any thread.
pub struct Event {
    pub(crate) state: Arc<State>,
}

/// What the runtime and the handles share.
pub(crate) struct State {
    pub(crate) shared: Arc<Shared>,
    /// The fence that it stands for, where it stands for no copy.
    fence: Option<FenceId>,
    /// The only copy, where it was done before there was an event.
    direct: Option<Direct>,
    /// How many [`Event`]s there are.
    handles: AtomicUsize,
    ended: AtomicBool,
    /// Whether somebody has asked how it ends, or need not: then it is not logged.
    watched: AtomicBool,
    /// Whether who waits has looked for its end.
    looked: AtomicBool,
    /// The most that [`Event::progress`] has returned.
    shown_bytes: AtomicU64,
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Default)]
struct Inner {
    /// Transfers that have not ended.
    running: Vec<(TransferId, Arc<Plan>)>,
    reports: Vec<CopyReport>,
    done_bytes: u64,
    total_bytes: u64,
    /// The first failure, then the outcome.
    failure: Option<Error>,
    outcome: Option<Result<(), Error>>,
    /// Copies that have not ended, those yet to be submitted among them.
    left: usize,
    callbacks: Vec<Callback>,
    wakers: Vec<Waker>,
}

impl Event {
    /// Waits until it has ended, at most for `timeout`. Where a device moves bytes the first call looks for the end
    /// for up to 2 ms before it sleeps, and may call back for other events meanwhile. Must not be called by a
    /// callback of [`Event::on_done`], which may run on the thread that brings the end.
    ///
    /// # Errors
    /// What ended the copy, if not success: [`Error::Transfer`], [`Error::Cancelled`],
    /// [`Error::TimedOut`] where its deadline passed. [`Error::TimedOut`] as well where `timeout`
    /// passed first: then the copy runs on, and [`Event::is_done`] is false.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<(), Error> {
        self.state.watched.store(true, Ordering::Relaxed);
        if self.is_orphan() {
            return Err(Error::Forked);
        }
        let until = timeout.and_then(|t| Instant::now().checked_add(t));
        let is_early = || until.is_none_or(|until| Instant::now() < until);
        let state = &self.state;
        if !state.looked.load(Ordering::Relaxed) {
            let looked = state.shared.look_while(|| !self.is_done() && is_early());
            state.looked.fetch_or(looked, Ordering::Relaxed);
        }
        state.wait(until).unwrap_or(Err(Error::TimedOut))
    }

    /// Whether it has ended in any way. From then on no memory of it is touched.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state.ended.load(Ordering::Acquire)
    }

    /// How it has ended; `None` while it has not.
    #[must_use]
    pub fn outcome(&self) -> Option<Result<(), Error>> {
        self.state.watched.store(true, Ordering::Relaxed);
        self.state.lock().outcome.clone()
    }

    /// Bytes of payload written to the destination, and in all. The first never falls; in the child
    /// of a fork copies that run count for nothing.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        let state = &self.state;
        let (mut done, total, running) = {
            let inner = state.lock();
            let running: Vec<_> = inner.running.iter().map(|r| r.0).collect();
            (inner.done_bytes, inner.total_bytes, running)
        };
        // A transfer that has ended since is in neither sum.
        done += state.shared.progress_of(&running);
        (state.shown_bytes.fetch_max(done, Ordering::Relaxed).max(done).min(total), total)
    }

    /// Ends it as [`Error::Cancelled`], unless it has ended or is about to. Returns when no
    /// memory of it is touched any more. Must not be called by a callback of
    /// [`Event::on_done`], which may run on the thread that this waits for.
    pub fn cancel(&self) {
        if self.is_orphan() {
            return;
        }
        let state = &self.state;
        let running: Vec<_> = state.lock().running.iter().map(|r| r.0).collect();
        match state.fence {
            Some(fence) => state.shared.cancel_fence(fence),
            None => state.shared.cancel(&running),
        }
        let _ = state.wait(None);
    }

    /// Whether it will never end here: the machine stayed in the process that forked this one.
    #[must_use]
    pub fn is_orphan(&self) -> bool {
        !self.is_done() && !self.state.shared.is_of_this_process()
    }

    /// Where its time went: one report for each copy, those that have ended first. In the child
    /// of a fork there is none of a copy that runs.
    #[must_use]
    pub fn report(&self) -> Vec<CopyReport> {
        let state = &self.state;
        let (mut reports, running) = {
            let inner = state.lock();
            (inner.reports.clone(), inner.running.clone())
        };
        reports.extend(state.direct.as_ref().map(Direct::report));
        reports.extend(state.shared.reports_of(&running));
        reports
    }

    /// Calls `callback` with the outcome when it ends: at once where it has, else on the thread
    /// that ends it, which `callback` should not hold up. There, a panic of it is caught, and copies
    /// that it asks for begin once it has returned.
    pub fn on_done(&self, callback: impl FnOnce(&Result<(), Error>) + Send + 'static) {
        let state = &self.state;
        state.watched.store(true, Ordering::Relaxed);
        let mut inner = state.lock();
        match inner.outcome.clone() {
            None => inner.callbacks.push(Box::new(callback)),
            Some(outcome) => {
                drop(inner);
                callback(&outcome);
            }
        }
    }

    /// Adds `token` to what [`crate::Machine::take_finished`] returns when it has ended.
    pub fn notify(&self, token: u64) {
        let shared = Arc::clone(&self.state.shared);
        self.on_done(move |_| shared.finished.push(token));
    }

    /// The first event of `state`; the others are its clones.
    pub(crate) fn new(state: Arc<State>) -> Self {
        Event { state }
    }
}

impl Clone for Event {
    fn clone(&self) -> Self {
        self.state.handles.fetch_add(1, Ordering::Relaxed);
        Event { state: Arc::clone(&self.state) }
    }
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Event").field("outcome", &self.state.lock().outcome).finish()
    }
}

impl Future for Event {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let state = &self.state;
        state.watched.store(true, Ordering::Relaxed);
        let mut inner = state.lock();
        match inner.outcome.clone() {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                if !inner.wakers.iter().any(|w| w.will_wake(context.waker())) {
                    inner.wakers.push(context.waker().clone());
                }
                Poll::Pending
            }
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // What the other handles noted is seen by the last.
        let is_last = self.state.handles.fetch_sub(1, Ordering::AcqRel) == 1;
        if !is_last || self.state.watched.load(Ordering::Relaxed) {
            return;
        }
        // In the child of a fork nobody may be there to give the lock back.
        if !self.state.shared.is_of_this_process() {
            return;
        }
        let mut inner = self.state.lock();
        match inner.outcome.clone() {
            Some(outcome) => log_failure(&outcome),
            None => inner.callbacks.push(Box::new(log_failure)),
        }
    }
}

fn log_failure(outcome: &Result<(), Error>) {
    match outcome {
        Ok(()) | Err(Error::Cancelled) => {}
        Err(error) => log::error!("a copy that nobody waited for failed: {error}"),
    }
}

/// Whom to call at the end of an event, without any lock: that is a user's code.
#[must_use]
pub(crate) struct Calls {
    outcome: Result<(), Error>,
    callbacks: Vec<Callback>,
    wakers: Vec<Waker>,
}

impl Calls {
    pub(crate) fn call(self) {
        let Calls { outcome, callbacks, wakers } = self;
        wakers.into_iter().for_each(|waker| guarded(|| waker.wake()));
        callbacks.into_iter().for_each(|callback| guarded(|| callback(&outcome)));
    }
}

/// Runs what a user handed in on a thread that others depend on: its panic, which was printed
/// when it happened, goes no further.
pub(crate) fn guarded(call: impl FnOnce()) {
    let before = IS_CALLING_BACK.replace(true);
    if std::panic::catch_unwind(AssertUnwindSafe(call)).is_err() {
        log::error!("what a user has called at the end of a copy panicked");
    }
    IS_CALLING_BACK.set(before);
}

/// Whether this thread runs what a user handed in, and others wait for it to be told.
pub(crate) fn is_calling_back() -> bool {
    IS_CALLING_BACK.get()
}

impl State {
    /// An event of as many copies as `left`, of `total_bytes` in all.
    pub(crate) fn new(shared: &Arc<Shared>, left: usize, total_bytes: u64) -> Self {
        State {
            shared: Arc::clone(shared),
            fence: None,
            direct: None,
            handles: AtomicUsize::new(1),
            ended: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            looked: AtomicBool::new(false),
            shown_bytes: AtomicU64::new(0),
            inner: Mutex::new(Inner { total_bytes, left, ..Inner::default() }),
            changed: Condvar::new(),
        }
    }

    /// That of a fence, whose failure is told by the copies behind it.
    pub(crate) fn of_fence(shared: &Arc<Shared>, fence: FenceId) -> Self {
        let mut state = State::new(shared, 0, 0);
        (state.fence, state.watched) = (Some(fence), AtomicBool::new(true));
        state
    }

    /// Whether it stands for a fence.
    pub(crate) fn is_fence(&self) -> bool {
        self.fence.is_some()
    }

    /// One without copies.
    pub(crate) fn nothing(shared: &Arc<Shared>) -> Self {
        let state = State::new(shared, 0, 0);
        state.lock().outcome = Some(Ok(()));
        state.ended.store(true, Ordering::Release);
        state
    }

    /// One whose only copy is done already. Nothing is left to be logged.
    pub(crate) fn done(shared: &Arc<Shared>, direct: Direct) -> Self {
        let bytes = direct.bytes();
        let mut inner = Inner { done_bytes: bytes, total_bytes: bytes, ..Inner::default() };
        inner.outcome = Some(Ok(()));
        State {
            shared: Arc::clone(shared),
            fence: None,
            direct: Some(direct),
            handles: AtomicUsize::new(1),
            ended: AtomicBool::new(true),
            watched: AtomicBool::new(true),
            looked: AtomicBool::new(false),
            shown_bytes: AtomicU64::new(bytes),
            inner: Mutex::new(inner),
            changed: Condvar::new(),
        }
    }

    /// One of its copies runs as `transfer`.
    pub(crate) fn add(&self, transfer: TransferId, plan: &Arc<Plan>) {
        self.lock().running.push((transfer, Arc::clone(plan)));
    }

    /// One of its copies, `transfer` if it was submitted, has ended; whom to call if it was the last.
    #[must_use]
    pub(crate) fn finish(
        &self,
        transfer: Option<TransferId>,
        result: Result<(), Error>,
        report: CopyReport,
    ) -> Option<Calls> {
        let mut inner = self.lock();
        inner.running.retain(|r| Some(r.0) != transfer);
        inner.done_bytes += report.bytes();
        inner.reports.push(report);
        if let Err(error) = result {
            inner.failure.get_or_insert(error);
        }
        inner.left -= 1;
        (inner.left == 0).then(|| self.settle(inner))
    }

    /// The fence that it stands for is reached, or never will be; once.
    pub(crate) fn reach(&self, outcome: Result<(), Error>) -> Calls {
        let mut inner = self.lock();
        inner.failure = outcome.err();
        self.settle(inner)
    }

    /// What another transfer has to wait for.
    ///
    /// # Errors
    /// The failure of a copy that has ended.
    pub(crate) fn unfinished(&self) -> Result<Vec<TransferId>, Error> {
        let inner = self.lock();
        let failed = inner.failure.clone().map_or(Ok(()), Err);
        inner.outcome.clone().unwrap_or(failed)?;
        Ok(inner.running.iter().map(|r| r.0).collect())
    }

    fn settle(&self, mut inner: MutexGuard<'_, Inner>) -> Calls {
        let outcome = inner.failure.take().map_or(Ok(()), Err);
        inner.outcome = Some(outcome.clone());
        self.ended.store(true, Ordering::Release);
        let callbacks = std::mem::take(&mut inner.callbacks);
        let wakers = std::mem::take(&mut inner.wakers);
        drop(inner);
        self.changed.notify_all();
        Calls { outcome, callbacks, wakers }
    }

    /// The outcome; `None` where `deadline` passed first.
    fn wait(&self, deadline: Option<Instant>) -> Option<Result<(), Error>> {
        let mut inner = self.lock();
        while inner.outcome.is_none() {
            inner = match deadline {
                None => self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.checked_duration_since(Instant::now())?;
                    let waited = self.changed.wait_timeout(inner, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        inner.outcome.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Array, CopyOptions, Machine};
    use std::sync::mpsc;

    #[test]
    fn who_is_told_does_not_wait_for_copies_that_end_meanwhile() {
        let machine = Machine::builder().assume(true).lanes(1).staging(8 << 20).open().unwrap();
        let [kept, events @ ..] = waiting(&machine, [(); 4]);
        let go = keep_driver(&machine, &kept);
        let [first, second, third] = [0, 1, 2].map(|at| transfer_of(&events[at]));
        let (tell, told) = mpsc::channel();
        let shared = Arc::clone(&machine.shared);
        events[0].on_done(move |_| shared.cancel(&[third]));
        for (at, event) in events.iter().enumerate().skip(1) {
            let tell = tell.clone();
            event.on_done(move |_| tell.send(at).unwrap());
        }
        machine.shared.cancel(&[first, second]);
        go.send(()).unwrap();
        assert_eq!([told.recv().unwrap(), told.recv().unwrap()], [1, 2]);
    }

    #[test]
    fn who_is_called_back_beside_the_driver_may_wait_and_close() {
        let machine = Machine::builder().assume(true).lanes(1).staging(8 << 20).open().unwrap();
        let (machine, here) = (Arc::new(machine), std::thread::current().id());
        let [kept, second, third] = waiting(&machine, [(); 3]);
        let go = keep_driver(&machine, &kept);
        let (tell, told) = mpsc::channel();
        let called = Arc::clone(&machine);
        second.on_done(move |_| {
            go.send(()).unwrap();
            // One with a deadline is not run on the thread that asks for it.
            let deadline = Some(Duration::from_secs(3600));
            let options = CopyOptions { deadline, ..CopyOptions::default() };
            let outcome = started(&called, &options).wait(None);
            called.close_now();
            tell.send((std::thread::current().id(), outcome)).unwrap();
        });
        machine.shared.cancel(&[transfer_of(&second)]);
        let (thread, outcome) = told.recv().unwrap();
        assert!(thread == here && outcome.is_ok(), "{outcome:?}");
        assert!(third.is_done());
    }

    /// Copies that wait for what is never reached.
    fn waiting<const N: usize>(machine: &Machine, copies: [(); N]) -> [Event; N] {
        let never = State::of_fence(&machine.shared, FenceId(u64::MAX));
        let after = vec![Event::new(Arc::new(never))];
        let options = CopyOptions { after, ..CopyOptions::default() };
        copies.map(|()| started(machine, &options))
    }

    /// A copy from array to array.
    fn started(machine: &Machine, options: &CopyOptions) -> Event {
        let array = Array::of(&[("x", 64)], "|u1").unwrap();
        let [src, dst] = [(); 2].map(|()| machine.empty(array.clone(), "sys").unwrap());
        machine.copy(&src, &dst, options).unwrap()
    }

    fn transfer_of(event: &Event) -> TransferId {
        event.state.lock().running[0].0
    }

    /// Cancels a copy, and has the driver wait in its callback until something is sent: what ends
    /// meanwhile is told of by this thread alone.
    fn keep_driver(machine: &Machine, copy: &Event) -> mpsc::Sender<()> {
        let ((come, came), (go, gone)) = (mpsc::channel(), mpsc::channel());
        copy.on_done(move |_| {
            come.send(std::thread::current().id()).unwrap();
            gone.recv().unwrap();
        });
        let transfer = transfer_of(copy);
        guarded(|| machine.shared.cancel(&[transfer]));
        assert_ne!(came.recv().unwrap(), std::thread::current().id(), "the driver is kept here");
        go
    }

    #[test]
    fn progress_counts_what_ends_while_it_is_asked_for() {
        let machine = Machine::builder().assume(true).lanes(1).staging(8 << 20).open().unwrap();
        let array = Array::of(&[("y", 4096), ("x", 4096)], "<f4").unwrap();
        let src = machine.empty(array.clone(), "sys").unwrap();
        let dst = machine.empty(array.laid_out("xy").unwrap(), "sys").unwrap();
        let event = machine.copy(&src, &dst, &CopyOptions::default()).unwrap();
        while event.progress().0 == 0 {
            std::thread::yield_now();
        }
        let before = event.progress().0;
        // The engine has forgotten the transfer, and the event has not been told.
        event.state.lock().running.clear();
        assert!(event.progress().0 >= before);
    }
}
