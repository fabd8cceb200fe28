//! Threads that open memory of other processes for devices, one for each job that has to wait for that: a driver
//! takes its time, and whether a process is lost that refuses it is known later still. Who waits for one
//! memory holds up nobody who waits for another, as far as the link takes more jobs.

use super::exported::Exported;
use channel::accelerator::Device;
use channel::model::{ChannelError, ChannelErrorKind};
use channel::{Bell, DoneQueue, Job, Region};
use fabric::Fabric;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// A job whose destination, [`Exported`] memory, was to be opened, and that as the device finds it, or why it
/// doesn't.
type Answer = (Job, Result<Arc<Region>, ChannelError>);

/// Who is asked, by no more jobs than the link holds, and the threads that have not ended.
pub(crate) struct Opener {
    fabric: Arc<Fabric>,
    answers: Arc<DoneQueue<Answer>>,
    /// How many have asked and were not answered.
    count: usize,
    threads: Vec<JoinHandle<()>>,
}

impl Opener {
    /// One that rings `bell` for each answer.
    pub(crate) fn new(fabric: Arc<Fabric>, bell: &Arc<Bell>) -> Opener {
        let answers = Arc::new(DoneQueue::new(Arc::clone(bell)));
        Opener { fabric, answers, count: 0, threads: Vec::new() }
    }

    /// Has `device` open where `job` goes.
    pub(crate) fn ask(&mut self, device: Arc<dyn Device>, job: Job) -> Result<(), ChannelError> {
        let (fabric, answers) = (Arc::clone(&self.fabric), Arc::clone(&self.answers));
        let body = move || {
            let open = AssertUnwindSafe(|| open(&fabric, device.as_ref(), &job));
            // Who waits for the answer waits for one whatever happens.
            let opened = catch_unwind(open).unwrap_or_else(|_| Err(panicked()));
            answers.push((job, opened));
        };
        let thread = Builder::new().name("isometry-open".to_owned()).spawn(body);
        self.threads.push(thread.map_err(|error| no_thread(&error))?);
        self.count += 1;
        Ok(())
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.count > 0
    }

    /// What has been answered. The bell is to be cleared before.
    pub(crate) fn answers(&mut self) -> Vec<Answer> {
        let mut answers = Vec::new();
        self.answers.take(&mut answers);
        self.count -= answers.len();
        self.threads.retain(|thread| !thread.is_finished());
        answers
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        // A panic of a thread was printed when it happened.
        self.threads.drain(..).for_each(|thread| _ = thread.join());
    }
}

fn no_thread(error: &io::Error) -> ChannelError {
    let detail = format!("no thread opens memory of another process: {error}");
    ChannelError {
        os_error: error.raw_os_error(),
        ..ChannelError::new(ChannelErrorKind::Io, detail)
    }
}

fn panicked() -> ChannelError {
    ChannelError::new(
        ChannelErrorKind::Io,
        "a thread panicked while it opened memory of another process",
    )
}

fn open(fabric: &Fabric, device: &dyn Device, job: &Job) -> Result<Arc<Region>, ChannelError> {
    let there: &Exported = job.dst.view().expect("it is such a job");
    there.open(fabric, (job.src.memory(), device), &job.dst)
}
