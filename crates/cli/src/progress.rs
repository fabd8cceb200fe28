//! The progress bar of a copy, on standard error.

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use indicatif::{ProgressBar, ProgressStyle};
use isometry::{Error, Event};
use std::time::Duration;

/// How often the bar moves and Ctrl-C is looked for.
const STEP: Duration = Duration::from_millis(50);

const TEMPLATE: &str =
    "{wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta} left";

/// Waits for the end of `event`, and returns how it ended. Ctrl-C cancels it.
pub(crate) fn wait(event: &Event, interrupt: &Interrupt) -> Result<Result<(), Error>, Failure> {
    // Hidden by itself where standard error is no terminal.
    let bar = ProgressBar::new(event.progress().1);
    bar.set_style(ProgressStyle::with_template(TEMPLATE).map_err(Failure::failed)?);
    loop {
        let ended = event.wait(Some(STEP));
        bar.set_position(event.progress().0);
        if event.is_done() {
            bar.finish_and_clear();
            return Ok(ended.or_else(|_| event.outcome().unwrap_or(Ok(()))));
        }
        if let Err(interrupted) = interrupt.check() {
            event.cancel();
            bar.finish_and_clear();
            return Err(interrupted);
        }
    }
}
