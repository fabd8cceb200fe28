//! Progress bars, on standard error.

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use indicatif::{ProgressBar, ProgressStyle};
use isometry::{Error, Event};
use std::time::Duration;

/// How often the bar moves and Ctrl-C is looked for.
const STEP: Duration = Duration::from_millis(50);

const OF_BYTES: &str =
    "{wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta} left";
const OF_COPIES: &str = "{wide_bar} {human_pos}/{human_len} copies {eta} left";

/// A bar of so many copies.
pub(crate) fn of_copies(copies: u64) -> Result<ProgressBar, Failure> {
    bar(copies, OF_COPIES)
}

/// Hidden by itself where standard error is no terminal.
fn bar(length: u64, template: &str) -> Result<ProgressBar, Failure> {
    let style = ProgressStyle::with_template(template).map_err(Failure::failed)?;
    Ok(ProgressBar::new(length).with_style(style))
}

/// Waits for the end of `event`, and returns how it ended. Ctrl-C cancels it.
pub(crate) fn wait(event: &Event, interrupt: &Interrupt) -> Result<Result<(), Error>, Failure> {
    let bar = bar(event.progress().1, OF_BYTES)?;
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
