//! Runs and rows between two memories, beside the API's own call for the same.

use super::api::{Api, Device, FBM, path};
use crate::Error;
use crate::content::Content;
use crate::native::{Host, RawDevice, Rows, Way};
use crate::report::{Bench, Case, Contender};
use isometry::{Array, CopyOptions, Instance};

/// What a destination holds before it is checked: what no case puts there.
pub(super) const POISON: u8 = 0xa5;

/// From where to where: rows lie apart in the host's memory, or where that has none of them in the source's,
/// and together in the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Route {
    /// As cases are called.
    pub(super) name: &'static str,
    from: &'static str,
    to: &'static str,
}

const fn route(name: &'static str, from: &'static str, to: &'static str) -> Route {
    Route { name, from, to }
}

/// Pageable memory and pinned, either way, and inside a device.
pub(super) const ROUTES: [Route; 5] = [
    route("host to device", "sys", FBM[0]),
    route("device to host", FBM[0], "sys"),
    route("pinned host to device", "zcm", FBM[0]),
    route("device to pinned host", FBM[0], "zcm"),
    route("inside a device", FBM[0], FBM[0]),
];

impl Route {
    fn is_inside(self) -> bool {
        self.from == self.to
    }

    /// The memories where rows lie apart and together.
    fn sides(self) -> [&'static str; 2] {
        if self.to == FBM[0] { [self.from, self.to] } else { [self.to, self.from] }
    }

    /// What it takes of a device's memory, ours and the API's together.
    pub(super) fn device_bytes(self, rows: Rows) -> u64 {
        let apart = if self.is_inside() { rows.span_bytes() } else { 0 };
        2 * (apart + rows.payload_bytes()) as u64
    }
}

/// A case: how often it runs, and how often a run copies.
#[derive(Debug, Clone)]
pub(super) struct Problem {
    pub(super) name: String,
    pub(super) route: Route,
    pub(super) rows: Rows,
    pub(super) runs: usize,
    pub(super) calls: usize,
}

/// Ours: the instances where rows lie apart and together.
struct Ours<'a> {
    device: &'a Device,
    problem: &'a Problem,
    apart: Instance,
    together: Instance,
}

impl<'a> Ours<'a> {
    fn new(device: &'a Device, problem: &'a Problem) -> Result<Self, Error> {
        let Rows { count, bytes, pitch } = problem.rows;
        let [apart, together] = problem.route.sides();
        let array = |x| Array::of(&[("y", count as u64), ("x", x as u64)], "|u1");
        let apart = device.empty(&array(pitch)?, apart)?;
        let together = device.empty(&array(bytes)?, together)?;
        Ok(Ours { device, problem, apart, together })
    }

    /// The bytes of rows where they lie apart, and between them.
    fn content(&self) -> Result<Vec<u8>, Error> {
        Content::of(&self.apart.array())?.to_vec(&self.device.stop)
    }

    /// The rows themselves, where they lie apart.
    fn rows(&self) -> Result<Instance, Error> {
        Ok(self.apart.select(&[("x", 0..self.problem.rows.bytes as i64)])?)
    }

    fn goes_together(&self) -> bool {
        self.problem.route.to == FBM[0]
    }

    /// Whether a copy brings all rows, and nothing else.
    fn is_right(&self, content: &[u8]) -> Result<bool, Error> {
        let (device, rows) = (self.device, self.problem.rows);
        let packed = together(content, rows);
        if self.goes_together() {
            device.load(&self.apart, content)?;
            device.load(&self.together, &vec![POISON; packed.len()])?;
            device.copy(&self.rows()?, &self.together)?;
            return Ok(device.bytes(&self.together)? == packed);
        }
        device.load(&self.together, &packed)?;
        device.load(&self.apart, &vec![POISON; content.len()])?;
        device.copy(&self.together, &self.rows()?)?;
        Ok(device.bytes(&self.apart)? == apart(&packed, rows, content.len()))
    }
}

/// The same by the API alone.
struct Raw<'a> {
    device: Box<dyn RawDevice>,
    host: Host,
    problem: &'a Problem,
}

impl<'a> Raw<'a> {
    fn new(api: &Api, device: &Device, problem: &'a Problem) -> Result<Self, Error> {
        let (rows, route) = (problem.rows, problem.route);
        let (apart_bytes, packed) = (rows.count * rows.pitch, rows.payload_bytes());
        // There are implementations of OpenCL that count the last row whole.
        let bytes = if route.is_inside() { [apart_bytes, packed] } else { [packed, 1] };
        let raw = api.raw(0, bytes)?;
        let host = match route.sides()[0] {
            "zcm" => raw.pin(apart_bytes)?,
            _ => Host::plain(&device.machine, apart_bytes)?,
        };
        Ok(Raw { device: raw, host, problem })
    }

    /// Copies once.
    fn copy(&mut self) -> Result<(), Error> {
        let (route, rows) = (self.problem.route, self.problem.rows);
        match route.to {
            to if to == route.from => self.device.copy_inside(rows),
            to if to == FBM[0] => self.device.copy(Way::Write, &mut self.host, rows),
            _ => self.device.copy(Way::Read, &mut self.host, rows),
        }
    }

    /// Whether what is timed does what ours does.
    fn is_right(&mut self, content: &[u8]) -> Result<bool, Error> {
        let Problem { rows, route, .. } = *self.problem;
        let packed = together(content, rows);
        self.host.bytes().copy_from_slice(content);
        if route.to != FBM[0] {
            self.device.copy(Way::Write, &mut self.host, rows)?;
            self.host.bytes().fill(POISON);
            self.copy()?;
            return Ok(*self.host.bytes() == apart(&packed, rows, content.len()));
        }
        if route.is_inside() {
            self.device.copy(Way::Write, &mut self.host, Rows::one(rows.span_bytes()))?;
        }
        self.copy()?;
        self.host.bytes().fill(POISON);
        let back = if route.is_inside() { Way::ReadSecond } else { Way::Read };
        self.device.copy(back, &mut self.host, Rows::one(packed.len()))?;
        Ok(self.host.bytes()[..packed.len()] == packed)
    }
}

/// Rows of `content` that lie apart, together.
fn together(content: &[u8], rows: Rows) -> Vec<u8> {
    content.chunks(rows.pitch).flat_map(|row| &row[..rows.bytes]).copied().collect()
}

/// Rows that lie together, apart, with what a destination holds between them.
fn apart(packed: &[u8], rows: Rows, bytes: usize) -> Vec<u8> {
    let mut all = vec![POISON; bytes];
    for (place, row) in all.chunks_mut(rows.pitch).zip(packed.chunks(rows.bytes)) {
        place[..rows.bytes].copy_from_slice(row);
    }
    all
}

/// Times ours beside the API's own.
pub(super) fn run(
    bench: &mut Bench,
    (api, device): (&Api, &Device),
    problem: &Problem,
) -> Result<(), Error> {
    let ours = Ours::new(device, problem)?;
    let mut raw = Raw::new(api, device, problem)?;
    let content = ours.content()?;
    let verified = ours.is_right(&content)? && raw.is_right(&content)?;
    drop(content);
    let rows = ours.rows()?;
    let (src, dst) = match ours.goes_together() {
        true => (&rows, &ours.together),
        false => (&ours.together, &rows),
    };
    let mut contenders = [
        Contender { name: "isometry", run: &mut || device.copy(src, dst) },
        Contender { name: "raw", run: &mut || raw.copy() },
    ];
    let Problem { name, rows, runs, calls, .. } = problem.clone();
    let bytes = rows.payload_bytes() as u64;
    let case = Case { name, bytes, threads: 1, runs, calls };
    bench.time((&case, verified), &mut contenders, &mut || Ok(()))?;
    let planned = device.machine.plan(src, dst, &CopyOptions::default().planning)?;
    bench.note("path", &path(&planned))
}
