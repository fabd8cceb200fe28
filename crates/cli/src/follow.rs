//! Follows the runs of a workload: progress, Ctrl-C, the trace.

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::trace_file::{self, TraceFile};
use crate::{output, progress};
use indicatif::ProgressBar;
use model::Topology;
use sim::{Baseline, Case, MAX_TRACE_EVENTS, Note, RunTrace, Watch};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Who follows the runs of a workload, one after the other.
pub(crate) struct Follower<'a> {
    interrupt: Interrupt,
    bar: ProgressBar,
    /// Copies of the runs before.
    before: u64,
    trace: Option<Trace<'a>>,
}

/// A trace of runs, that goes to its file while they go on.
struct Trace<'a> {
    path: &'a Path,
    events: RunTrace<'a>,
    out: BufWriter<TraceFile>,
    is_empty: bool,
    /// The first failure, after which nothing more is written.
    failure: Option<io::Error>,
}

impl<'a> Follower<'a> {
    /// One that awaits so many copies, and writes a trace of them where one is asked for.
    pub(crate) fn new(
        topology: &'a Topology,
        trace: Option<&'a Path>,
        copies: u64,
    ) -> Result<Self, Failure> {
        let interrupt = Interrupt::listen()?;
        let trace = trace.map(|path| Trace::open(path, topology)).transpose()?;
        Ok(Follower { interrupt, bar: progress::of_copies(copies)?, before: 0, trace })
    }

    /// A run begins.
    pub(crate) fn begin(&mut self, case: &'a Case, baseline: Option<Baseline>) {
        if let Some(trace) = &mut self.trace {
            trace.events.begin(case, baseline);
        }
    }

    /// A run of so many copies has ended.
    pub(crate) fn end(&mut self, copies: u64) {
        self.before += copies;
    }

    /// Ends the command here if it was asked for.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.interrupt.check()
    }

    /// No more is shown.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// Gives the trace its name, and says what it lacks.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        self.trace.map_or(Ok(()), Trace::commit)
    }
}

impl Watch for Follower<'_> {
    fn go_on(&mut self, ended: u64) -> bool {
        self.bar.set_position(self.before + ended);
        self.check().is_ok()
    }

    fn takes_notes(&self) -> bool {
        self.trace.is_some()
    }

    fn note(&mut self, note: &Note) {
        if let Some(trace) = self.trace.as_mut().filter(|trace| trace.failure.is_none()) {
            trace.failure = trace.write(note).err();
        }
    }
}

impl<'a> Trace<'a> {
    fn open(path: &'a Path, topology: &'a Topology) -> Result<Self, Failure> {
        let mut out = BufWriter::new(TraceFile::open(path)?);
        let begun = out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
        begun.map_err(|e| trace_file::unwritten(path, &e))?;
        Ok(Trace { path, events: RunTrace::new(topology), out, is_empty: true, failure: None })
    }

    /// One event a line.
    fn write(&mut self, note: &Note) -> io::Result<()> {
        for event in self.events.events(note) {
            let before: &[u8] = if self.is_empty { b"\n" } else { b",\n" };
            self.is_empty = false;
            self.out.write_all(before)?;
            serde_json::to_writer(&mut self.out, &event)?;
        }
        Ok(())
    }

    fn commit(mut self) -> Result<(), Failure> {
        let ended = self.failure.map_or_else(|| self.out.write_all(b"\n]}\n"), Err);
        let file = ended.and_then(|()| Ok(self.out.into_inner()?));
        file.map_err(|e| trace_file::unwritten(self.path, &e))?.commit()?;
        let left_out = self.events.left_out();
        if left_out > 0 {
            output::aside(format_args!(
                "trace: {left_out} events left out: it has the first {MAX_TRACE_EVENTS} requests, \
                 copies and values of counters; --filter runs fewer cases"
            ));
        }
        Ok(())
    }
}
