//! What other nodes ask of this one that takes its time. A thread of its own does it, so that all are heard
//! meanwhile.

use super::files::Asked;
use super::registry::Asker;
use crate::runtime::Shared;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

/// How many questions may wait.
const MOST_WAITING: usize = 256;

/// A question.
pub(super) enum Task {
    /// For a file.
    File(Box<Asked>),
    /// For checksums, as it came: it may be long.
    Sums(Vec<u8>),
}

/// Where questions wait.
#[derive(Default)]
pub(super) struct Desk(Mutex<Option<SyncSender<(Asker, Task)>>>);

impl Desk {
    /// Takes a question; `false` where too many wait.
    pub(super) fn take(&self, asker: Asker, task: Task) -> bool {
        let queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        queue.as_ref().is_some_and(|queue| queue.try_send((asker, task)).is_ok())
    }

    fn set(&self, queue: Option<SyncSender<(Asker, Task)>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = queue;
    }
}

/// The thread at the desk. It sleeps while nobody asks.
pub(super) struct Clerk(JoinHandle<()>);

impl Clerk {
    /// Starts it, for the nodes of `shared`.
    pub(super) fn start(desk: &Desk, shared: &Arc<Shared>) -> io::Result<Clerk> {
        let (sender, questions) = sync_channel(MOST_WAITING);
        let shared = Arc::clone(shared);
        let body = move || serve(&shared, &questions);
        let thread = Builder::new().name("isometry-desk".to_owned()).spawn(body)?;
        desk.set(Some(sender));
        Ok(Clerk(thread))
    }

    /// Ends it: nobody is answered from now on.
    pub(super) fn join(self, desk: &Desk) {
        desk.set(None);
        // A panic of the thread was printed when it happened.
        let _ = self.0.join();
    }
}

fn serve(shared: &Arc<Shared>, questions: &Receiver<(Asker, Task)>) {
    let Some(nodes) = shared.nodes.as_deref() else { return };
    for (asker, task) in questions {
        match task {
            Task::File(asked) => nodes.answer_file(shared, asker, &asked),
            Task::Sums(asked) => nodes.answer_sums(shared, asker, &asked),
        }
    }
}
