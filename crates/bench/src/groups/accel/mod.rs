//! Copies to, from and inside the memory of accelerators, by CUDA and by OpenCL.
//!
//! Whole runs, rows and small copies go beside the API's own calls for the same bytes (`cuMemcpyHtoDAsync`,
//! `cuMemcpy2DAsync` and their like, or `clEnqueue…`), from plain memory of the host and from memory that the
//! API has pinned. Conversions inside a device go beside a copy of as many bytes there. A file that becomes device
//! memory in another layout goes beside the hops of its plan, all at once and on other buffers, so that
//! each has what the others leave it: the slowest is what a pipeline can reach. And beside a read, a conversion
//! and an upload one after the other, as programs do by hand.
//!
//! The aims: `raw` takes at least 0.97 of our time for whole runs, `copy` at least 0.8 for conversions of 4
//! and 8 bytes, `hops at once` at least 0.9.
//!
//! What only emulates a device (this processor by PoCL, the tests' driver of CUDA) says so in the name of each
//! case: its figures are none of a device's.

mod across;
mod api;
mod inside;
mod path;
mod rows;
#[cfg(test)]
mod tests;

use crate::native::Rows;
use crate::problems::{self, Conversion};
use crate::report::Bench;
use crate::{Error, Report, Settings};
use api::{Api, Device};
use rows::{Problem, ROUTES};
use serde::Deserialize;

const PROBLEMS: &str = include_str!("../../../../../bench/problems/accel.toml");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Problems {
    rows: RowProblems,
    small: SmallProblems,
    inside: Vec<Conversion>,
    path: Vec<Conversion>,
}

/// Transfers of so many bytes, in rows of each of these lengths.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RowProblems {
    bytes: usize,
    rows: Vec<usize>,
    runs: usize,
}

/// Transfers of few bytes, so many together as a run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SmallProblems {
    sizes_bytes: Vec<usize>,
    batch: usize,
    runs: usize,
}

pub(super) fn run(settings: &Settings) -> Result<Report, Error> {
    let problems: Problems = problems::read("accel", PROBLEMS)?;
    let mut bench = Bench::new("accel", settings)?;
    for api in Api::all(&mut bench)? {
        run_api(&mut bench, &api, &problems)?;
    }
    bench.finish()
}

/// Runs all cases on the devices of one API.
fn run_api(bench: &mut Bench, api: &Api, problems: &Problems) -> Result<(), Error> {
    bench.also_on(&format!("{}: {}", api.label, api.about))?;
    let device = api.open(bench.settings(), None)?;
    for problem in problems.rows.all(api).into_iter().chain(problems.small.all(api)) {
        let bytes = problem.route.device_bytes(problem.rows);
        if api.wants(bench, &problem.name, bytes) {
            rows::run(bench, (api, &device), &problem)?;
        }
    }
    run_across(bench, (api, &device), &problems.rows)?;
    for problem in &problems.inside {
        let name = named(api, &problem.name);
        if api.wants(bench, &name, 4 * problem.bytes()?) {
            inside::run(bench, (api, &device), (name, problem))?;
        }
    }
    drop(device);
    for problem in &problems.path {
        let name = named(api, &problem.name);
        if api.wants(bench, &name, 6 * problem.bytes()?) {
            path::run(bench, api, (name, problem))?;
        }
    }
    Ok(())
}

/// A whole run from one device to another, where there are two.
fn run_across(
    bench: &mut Bench,
    (api, device): (&Api, &Device),
    &RowProblems { bytes, runs, .. }: &RowProblems,
) -> Result<(), Error> {
    let name = named(api, &format!("device to another, one run of {}", size(bytes)));
    if bench.wants(&name) && !api.has_two() {
        bench.leave_out(&name, "there is one device");
        return Ok(());
    }
    match api.wants(bench, &name, 2 * bytes as u64) {
        true => across::run(bench, (api, device), (name, bytes, runs)),
        false => Ok(()),
    }
}

/// The case `name` on the devices of `api`.
fn named(api: &Api, name: &str) -> String {
    format!("{}: {name}", api.label)
}

impl RowProblems {
    /// Each length by each route; rows are twice as far apart as they are long, but for a single one.
    fn all(&self, api: &Api) -> Vec<Problem> {
        let one = |route: rows::Route, &bytes: &usize| {
            let count = self.bytes / bytes;
            let is_one = count == 1;
            let what = if is_one { "one run" } else { "rows" };
            let name = named(api, &format!("{}, {what} of {}", route.name, size(bytes)));
            let pitch = if is_one { bytes } else { 2 * bytes };
            let rows = Rows { count, bytes, pitch };
            Problem { name, route, rows, runs: self.runs, calls: 1 }
        };
        ROUTES.iter().flat_map(|&route| self.rows.iter().map(move |row| one(route, row))).collect()
    }
}

impl SmallProblems {
    /// Each size by each route.
    fn all(&self, api: &Api) -> Vec<Problem> {
        let one = |route: rows::Route, &bytes: &usize| {
            let name = format!("{}, {}, mean of {}", route.name, size(bytes), self.batch);
            let (name, rows) = (named(api, &name), Rows::one(bytes));
            Problem { name, route, rows, runs: self.runs, calls: self.batch }
        };
        let sizes = &self.sizes_bytes;
        ROUTES.iter().flat_map(|&route| sizes.iter().map(move |bytes| one(route, bytes))).collect()
    }
}

/// `64 KiB`.
fn size(bytes: usize) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}
