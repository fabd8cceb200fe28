//! The operations on files that a plan makes, as the disk channels say.

use super::Scene;
use crate::Error;
use crate::report::Bench;
use channel::{Job, Provider, Region};
use channel_disk::{Cache, Direction, FileRegion, Operation};
use channel_host::{HostProvider, Pages};
use engine::Program;
use isometry::{Array, Instance};
use layout::{Part, Placement, Side, Stream, copies};
use model::{
    ChannelKind, CopyWork, MemoryId, Place, Plan, RegionId, RequestId, Selection, Topology, Work,
};
use std::path::Path;
use std::sync::Arc;

/// What the sequential program asks for at once.
const SEQUENTIAL_BYTES: u64 = 1 << 20;

/// Reads of the input and writes of the output, each in the order of their start, and how many of
/// them are in flight at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Operations {
    pub(super) reads: Vec<Operation>,
    pub(super) writes: Vec<Operation>,
    pub(super) depth: u32,
}

impl Operations {
    /// Those that `plan` makes in `scene`.
    pub(super) fn of(plan: &Plan, scene: &Scene) -> Result<Self, Error> {
        let (src, dst) = (part(&scene.src.array())?, part(&scene.to)?);
        let program =
            Program::compile(plan, src, dst).map_err(Error::part("compiling the plan"))?;
        let last = plan.hops.len() - 1;
        if last == 0 {
            return Err(Error::part("taking the plan apart")("it has one hop"));
        }
        let lister = Lister { program: &program, plan };
        let memory = scene.src.memory();
        let input = region(&scene.dir.join("in.raw"), &scene.src, memory)?;
        let output = output(&scene.dir.join("listed.raw"), &scene.to, memory)?;
        let reads = lister.list((0, 1), &input, Direction::Read)?;
        let writes = lister.list((last, last), &output, Direction::Write)?;
        Ok(Operations { reads, writes, depth: depth(&scene.machine.topology()) })
    }

    /// As many bytes at the same depth, from the first to the last.
    pub(super) fn sequential(&self, bytes: u64) -> Self {
        let direct = |all: &[Operation]| all.iter().any(|o| o.direct);
        let all = |direct| {
            let steps = (0..bytes / SEQUENTIAL_BYTES).map(|i| i * SEQUENTIAL_BYTES);
            steps.map(|offset| Operation { offset, bytes: SEQUENTIAL_BYTES, direct }).collect()
        };
        let (reads, writes) = (all(direct(&self.reads)), all(direct(&self.writes)));
        Operations { reads, writes, depth: self.depth }
    }

    /// The longest operation.
    pub(super) fn most_bytes(&self) -> u64 {
        let all = self.reads.iter().chain(&self.writes);
        all.map(|o| o.bytes).max().unwrap_or(0).max(SEQUENTIAL_BYTES)
    }

    /// Notes how many there are, and of how many bytes.
    pub(super) fn figures(&self, bench: &mut Bench) -> Result<(), Error> {
        let bytes = |all: &[Operation]| all.iter().map(|o| o.bytes).sum::<u64>() as f64;
        bench.figure("depth", self.depth.into())?;
        bench.figure("reads", self.reads.len() as f64)?;
        bench.figure("read_bytes", bytes(&self.reads))?;
        bench.figure("writes", self.writes.len() as f64)?;
        bench.figure("written_bytes", bytes(&self.writes))
    }
}

struct Lister<'a> {
    program: &'a Program,
    plan: &'a Plan,
}

impl Lister<'_> {
    /// The operations of hop `hop`, between the file and the buffer whose layout is number
    /// `layout` of the plan.
    fn list(
        &self,
        (hop, layout): (usize, usize),
        file: &Arc<Region>,
        direction: Direction,
    ) -> Result<Vec<Operation>, Error> {
        let (src, plan) = (self.program.src(), self.plan);
        let stream =
            Stream::new(&plan.layouts[layout], src.extents(), &plan.phase, src.field_bytes())
                .map_err(Error::part("making the buffer's stream"))?;
        let longest = self.program.requests(hop).map(|r| r.end - r.start).max().unwrap_or(0);
        let buffer = HostProvider::new(plan.memories[1], Pages::default()).allocate(longest, 4096);
        let buffer = Arc::new(buffer.map_err(Error::part("allocating a buffer"))?);
        let mut all = Vec::new();
        for range in self.program.requests(hop) {
            let window = Side::Stream { stream: &stream, base: range.start };
            let payload_bytes = range.end - range.start;
            let (list, src, dst) = match direction {
                Direction::Read => {
                    let from = Side::Instance(self.program.src());
                    (copies(from, window, &stream, range), file, &buffer)
                }
                Direction::Write => {
                    let to = Side::Instance(self.program.dst());
                    (copies(window, to, &stream, range), &buffer, file)
                }
            };
            let place = Place { region: RegionId { index: 0, generation: 0 }, offset: 0 };
            let work = CopyWork {
                list: list.into(),
                src: place,
                dst: place,
                payload_bytes,
                result_bytes: 0,
            };
            let (src, dst) = (Arc::clone(src), Arc::clone(dst));
            let job = Job { request: RequestId(0), work: Work::Copy(work), src, dst };
            let made = channel_disk::operations(job, direction);
            all.extend(made.map_err(Error::part("listing the operations"))?);
        }
        Ok(all)
    }
}

fn region(path: &Path, src: &Instance, memory: MemoryId) -> Result<Arc<Region>, Error> {
    let file = FileRegion::open(path, 0..src.payload_bytes(), Cache::Bypass);
    Ok(Arc::new(file.map_err(Error::part("opening the input"))?.into_region(memory)))
}

/// A file that is gone when the region is dropped.
fn output(path: &Path, array: &Array, memory: MemoryId) -> Result<Arc<Region>, Error> {
    let file = FileRegion::create(path, &[], array.bytes()?, Cache::Bypass);
    Ok(Arc::new(file.map_err(Error::part("creating an output"))?.into_region(memory)))
}

fn part(array: &Array) -> Result<Part, Error> {
    let whole = Placement::of_layout(&array.layout, &array.space, &array.fields)
        .and_then(|place| place.select(&Selection::all(&array.space), &[0]));
    whole.map_err(Error::part("placing an array"))
}

/// Operations that a disk channel has in flight at most.
fn depth(topology: &Topology) -> u32 {
    let channels = &topology.classes[0].channels;
    let read = channels.iter().find(|c| c.kind == ChannelKind::DiskRead);
    channel_disk::operations_at_once(read.and_then(|c| c.in_flight).unwrap_or(1))
}
