//! Ctrl-C as a value that is looked at.

use crate::failure::Failure;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the user asked to stop. A second Ctrl-C ends the process without cleaning up.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt {
    asked: Arc<AtomicBool>,
}

impl Interrupt {
    /// Listens to SIGINT and SIGTERM from now on.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            let first = flag::register_conditional_shutdown(signal, 130, Arc::clone(&asked));
            let then = first.and_then(|_| flag::register(signal, Arc::clone(&asked)));
            then.map_err(|e| Failure::failed(format_args!("can't listen to signals: {e}")))?;
        }
        Ok(Interrupt { asked })
    }

    /// Whether it was asked for.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Ends the command here if it was asked for.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.is_asked() { Err(Failure::Interrupted) } else { Ok(()) }
    }
}
