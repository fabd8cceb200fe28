//! Progress bars, on standard error.

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output;
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

/// Who asked for a copy: is told how it goes, and may want its end.
pub(crate) trait Watch {
    /// The path that it takes.
    fn planned(&self, path: &str);

    /// The payload that was moved, and in all.
    fn moved(&self, progress: (u64, u64));

    /// Nothing more is moved.
    fn ended(&self);

    /// Fails where its end is wanted.
    fn check(&self) -> Result<(), Failure>;
}

/// A person, who may type Ctrl-C.
pub(crate) struct Terminal<'a> {
    bar: ProgressBar,
    interrupt: &'a Interrupt,
}

impl<'a> Terminal<'a> {
    pub(crate) fn new(interrupt: &'a Interrupt) -> Result<Self, Failure> {
        Ok(Terminal { bar: bar(0, OF_BYTES)?, interrupt })
    }
}

impl Watch for Terminal<'_> {
    fn planned(&self, path: &str) {
        output::aside(path);
    }

    fn moved(&self, (done, total): (u64, u64)) {
        self.bar.set_length(total);
        self.bar.set_position(done);
    }

    fn ended(&self) {
        self.bar.finish_and_clear();
    }

    fn check(&self) -> Result<(), Failure> {
        self.interrupt.check()
    }
}

/// Waits for the end of `event`, and returns how it ended; it is cancelled where `watch` wants that.
pub(crate) fn wait(event: &Event, watch: &dyn Watch) -> Result<Result<(), Error>, Failure> {
    loop {
        let ended = event.wait(Some(STEP));
        watch.moved(event.progress());
        if event.is_done() {
            watch.ended();
            return Ok(ended.or_else(|_| event.outcome().unwrap_or(Ok(()))));
        }
        if let Err(wanted) = watch.check() {
            event.cancel();
            watch.ended();
            return Err(wanted);
        }
    }
}
