//! Ctrl-C, and what else asks a program to end, as a value that is looked at.

use crate::failure::{Failure, interrupted_code};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Which signal asked to stop, if one did. A second one ends the process without cleaning up.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt {
    asked: Arc<AtomicUsize>,
    any: Arc<AtomicBool>,
}

impl Interrupt {
    /// Listens to SIGINT, SIGTERM and SIGHUP from now on; not to those that whoever started the
    /// program has it ignore, as `nohup` does. A file beyond the limit on its size is an error
    /// from here on, which leaves nothing behind, rather than the end of the process.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let (asked, any) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let ignored = ignored_signals();
        let deaf = |e| Failure::failed(format_args!("can't listen to signals: {e}"));
        flag::register(SIGXFSZ, Arc::default()).map_err(deaf)?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let number = u8::try_from(signal).unwrap_or(u8::MAX);
            if ignored >> (number - 1) & 1 == 1 {
                continue;
            }
            let code = i32::from(interrupted_code(number));
            let noted = flag::register_conditional_shutdown(signal, code, Arc::clone(&any))
                .and_then(|_| flag::register_usize(signal, Arc::clone(&asked), number.into()))
                .and_then(|_| flag::register(signal, Arc::clone(&any)));
            noted.map_err(deaf)?;
        }
        Ok(Interrupt { asked, any })
    }

    /// What is set when any of them asked.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.any)
    }

    /// Ends the command here if it was asked for.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match self.asked.load(Ordering::Relaxed) {
            0 => Ok(()),
            signal => Err(Failure::Interrupted(u8::try_from(signal).unwrap_or(u8::MAX))),
        }
    }
}

/// A bit for each signal that this process ignores, signal 1 the lowest.
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
