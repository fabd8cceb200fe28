use crate::error::Error;
use crate::fabric::Fabric;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

/// A thread that runs handlers when messages come, and sleeps else; ends when dropped.
#[derive(Debug)]
pub struct Service {
    fabric: Arc<Fabric>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Serves `fabric`. Other threads may go on polling and waiting: who does first runs a handler.
    ///
    /// # Errors
    /// [`Error::Io`] where no thread can be started.
    pub fn of(fabric: Arc<Fabric>) -> Result<Service, Error> {
        let is_over = Arc::new(AtomicBool::new(false));
        let (served, theirs) = (Arc::clone(&fabric), Arc::clone(&is_over));
        let serve = move || {
            let waited = served.wait_until(None, || theirs.load(Ordering::Acquire));
            debug_assert!(waited.is_ok(), "it has all the time and is no handler");
        };
        let thread = Builder::new().name("iso-service".into()).spawn(serve);
        let thread = Some(thread.map_err(Error::io("starting a service"))?);
        Ok(Service { fabric, is_over, thread })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.fabric.wake();
        // A panic of a handler has been told by its hook.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
