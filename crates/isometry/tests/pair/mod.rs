//! Two machines that are nodes of one job, in this process.

use isometry::fabric::{Config, Job};
use isometry::{Machine, MachineBuilder};
use std::thread;

/// Opens both, which join each other by shared memory.
pub(crate) fn pair(builders: [MachineBuilder; 2]) -> [Machine; 2] {
    let job = Job::new(2).unwrap();
    let join = |(rank, builder): (u32, MachineBuilder)| {
        let variables = job.variables(rank);
        let lookup = |name: &str| variables.iter().find(|v| v.0 == name).map(|v| v.1.clone());
        let config = Config::from_variables(lookup).unwrap();
        builder.staging(16 << 20).assume(true).join(&config).unwrap()
    };
    let join = &join;
    let [first, second] = builders;
    thread::scope(|scope| {
        let joining = [(0, first), (1, second)].map(|node| scope.spawn(move || join(node)));
        joining.map(|node| node.join().unwrap())
    })
}
