//! The thread that opens memory of other processes for devices: a driver takes its time for that, and whether a
//! process is lost that refuses it is known later still.

use super::exported::Exported;
use channel::accelerator::Device;
use channel::model::{ChannelError, ChannelErrorKind};
use channel::{Bell, DoneQueue, Job, Region, TaskQueue};
use fabric::Fabric;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// A job whose destination, [`Exported`] memory, a device has not opened.
type Asked = (Arc<dyn Device>, Job);

/// That job, and its destination as the device finds it, or why it doesn't.
type Answer = (Job, Result<Arc<Region>, ChannelError>);

/// The running thread. It sleeps while nobody asks.
pub(crate) struct Opener {
    asked: Arc<TaskQueue<Asked>>,
    answers: Arc<DoneQueue<Answer>>,
    /// How many have asked and were not answered.
    count: usize,
    thread: Option<JoinHandle<()>>,
}

impl Opener {
    /// Starts it; it rings `bell` for each answer.
    pub(crate) fn start(fabric: Arc<Fabric>, bell: &Arc<Bell>) -> io::Result<Opener> {
        let (asked, answers) =
            (Arc::<TaskQueue<Asked>>::default(), DoneQueue::new(Arc::clone(bell)));
        let answers = Arc::new(answers);
        let (hears, tells) = (Arc::clone(&asked), Arc::clone(&answers));
        let body = move || {
            while let Some((device, job)) = hears.take() {
                let open = AssertUnwindSafe(|| open(&fabric, device.as_ref(), &job));
                // Who waits for the answer waits for one whatever happens.
                let opened = catch_unwind(open).unwrap_or_else(|_| Err(panicked()));
                tells.push((job, opened));
            }
        };
        let thread = Builder::new().name("isometry-open".to_owned()).spawn(body)?;
        Ok(Opener { asked, answers, count: 0, thread: Some(thread) })
    }

    /// Has `device` open where `job` goes.
    pub(crate) fn ask(&mut self, device: Arc<dyn Device>, job: Job) {
        self.count += 1;
        self.asked.push((device, job));
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.count > 0
    }

    /// What has been answered. The bell is to be cleared before.
    pub(crate) fn answers(&mut self) -> Vec<Answer> {
        let mut answers = Vec::new();
        self.answers.take(&mut answers);
        self.count -= answers.len();
        answers
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        self.asked.close();
        // A panic of the thread was printed when it happened.
        let _ = self.thread.take().map(JoinHandle::join);
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
