//! The groups: what each times, and beside what.

mod accel;
mod convert;
mod curves;
mod disk;
mod fabric;
mod firehose;
mod kernels;
mod planner;
mod priority;
mod small;

pub use kernels::{Counts, check_counts, run_beside as kernels_beside, run_counted};

use crate::{Error, Report, Settings};

/// A group of cases.
#[derive(Debug)]
pub struct Group {
    /// What it is called.
    pub name: &'static str,
    /// What it times, in a line.
    pub about: &'static str,
    run: fn(&Settings) -> Result<Report, Error>,
}

/// All groups.
pub const GROUPS: [Group; 10] = [
    Group {
        name: "small",
        about: "copies of 64 B to 4 KiB inside host memory, beside memcpy",
        run: small::run,
    },
    Group {
        name: "convert",
        about: "conversions of a layout inside host memory, beside memcpy",
        run: convert::run,
    },
    Group {
        name: "kernels",
        about: "the kernels alone, beside memcpy, a streaming copy, and other libraries",
        run: kernels::run,
    },
    Group {
        name: "disk",
        about: "conversions from file to file, beside the same reads and writes alone",
        run: disk::run,
    },
    Group {
        name: "fabric",
        about: "puts, gets and active messages between two ranks, beside memcpy and two cores",
        run: fabric::run,
    },
    Group {
        name: "firehose",
        about: "puts to memory that is pinned where it is used, beside other ways to have it pinned",
        run: firehose::run,
    },
    Group {
        name: "priority",
        about: "an urgent copy under a load of others, beside the same copy alone",
        run: priority::run,
    },
    Group {
        name: "accel",
        about: "copies to, from and inside an accelerator's memory, beside its API alone and beside their hops",
        run: accel::run,
    },
    Group {
        name: "planner",
        about: "planning on the paper's cluster: cached, simple, and the full search",
        run: planner::run,
    },
    Group {
        name: "curves",
        about: "predictions of copies whose sizes were not measured, beside the copies",
        run: curves::run,
    },
];

/// The group called `name`.
///
/// # Errors
/// [`Error::UnknownGroup`].
pub fn named(name: &str) -> Result<&'static Group, Error> {
    let known = || GROUPS.iter().map(|g| g.name).collect();
    let unknown = || Error::UnknownGroup { name: name.to_owned(), known: known() };
    GROUPS.iter().find(|g| g.name == name).ok_or_else(unknown)
}

impl Group {
    /// Runs the group's cases, prints a table, says on standard error how far it is, and writes
    /// `GROUP.json`. Blocks for seconds to minutes. What it allocates on disk is gone when it
    /// returns.
    ///
    /// # Errors
    /// [`Error::Interrupted`] soon after [`crate::Stop`] was asked for; any other where a case
    /// can't be set up or run. A wrong result is no error; it stands in the report.
    pub fn run(&self, settings: &Settings) -> Result<Report, Error> {
        (self.run)(settings)
    }
}
