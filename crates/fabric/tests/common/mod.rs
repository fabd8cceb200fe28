//! Ranks as processes: a test starts its own program again, once for each rank.

use isometry_fabric::{Config, Error, Fabric, Handlers, Job};
use std::env;
use std::process::{Child, Command, ExitStatus, Stdio};

/// The variable that tells a process that it is a rank.
const CHILD: &str = "ISOMETRY_TEST_RANK";

/// Whether this process is a rank that a test started.
pub(crate) fn is_rank() -> bool {
    env::var_os(CHILD).is_some()
}

/// Starts `size` processes that run `test` again.
pub(crate) fn start(test: &str, size: u32) -> Vec<Child> {
    let job = Job::new(size).unwrap();
    let program = env::current_exe().unwrap();
    let start = |rank: u32| {
        // Whatever becomes of it, nobody waits for it for ever.
        let mut command = Command::new("timeout");
        command
            .args(["--signal=KILL", "120"])
            .arg(&program)
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .env(CHILD, "1");
        command.envs(job.variables(rank)).stdout(Stdio::null()).spawn().unwrap()
    };
    (0..size).map(start).collect()
}

/// Waits for all of these.
pub(crate) fn ended(children: Vec<Child>) -> Vec<ExitStatus> {
    children.into_iter().map(|mut child| child.wait().unwrap()).collect()
}

/// Joins as the variables say, with some memory.
pub(crate) fn join(handlers: Handlers) -> Result<Fabric, Error> {
    let mut config = Config::from_variables(|name| env::var(name).ok())?;
    config.segment_bytes = 1 << 20;
    Fabric::join(&config, handlers)
}
