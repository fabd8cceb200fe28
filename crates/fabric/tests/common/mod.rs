//! Ranks as processes: a test starts its own program again, once for each rank.

use isometry_fabric::model::NodeId;
use isometry_fabric::shm::Shm;
use isometry_fabric::{
    APART, Capabilities, Conduit, Config, Error, Fabric, Handlers, Job, Lost, Message, Queue, ROOT,
    Refusal, Segment,
};
use std::env;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

/// The variable that tells a process that it is a rank.
const CHILD: &str = "ISOMETRY_TEST_RANK";

/// Whether this process is a rank that a test started.
pub(crate) fn is_rank() -> bool {
    env::var_os(CHILD).is_some()
}

/// Whether ranks of this test map each other's memory.
#[allow(dead_code, reason = "not every test asks")]
pub(crate) fn is_mapped() -> bool {
    let mapped = [Over::Shm, Over::NearTcp, Over::NearUcx].map(|over| format!("{over:?}"));
    env::var(CHILD).is_ok_and(|over| mapped.contains(&over))
}

/// How ranks reach each other.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Over {
    /// By shared memory.
    Shm,
    /// By messages alone.
    Messages,
    /// By TCP.
    Tcp,
    /// By UCX.
    Ucx,
    /// By either, and by each other's memory, which ranks of one machine map.
    NearTcp,
    NearUcx,
}

impl Over {
    /// Whether UCX is needed.
    pub(crate) fn is_ucx(self) -> bool {
        matches!(self, Over::Ucx | Over::NearUcx)
    }

    /// Where ranks meet that reach each other so, of which a job says this.
    pub(crate) fn root(self, root: String) -> String {
        match self {
            Over::NearTcp | Over::NearUcx => root.replace(APART, ""),
            _ => root,
        }
    }
}

/// All of these, for the ranks of a test; it says which is not there.
pub(crate) fn ways(test: &str) -> Vec<Over> {
    let unmapped = unmapped(test);
    let by_ucx = unmapped.iter().filter(|over| over.is_ucx()).map(|_| Over::NearUcx);
    let mapped: Vec<_> = [Over::Shm, Over::NearTcp].into_iter().chain(by_ucx).collect();
    [mapped, unmapped].concat()
}

/// Those that map no memory.
pub(crate) fn unmapped(test: &str) -> Vec<Over> {
    let mut ways = vec![Over::Messages, Over::Tcp];
    if is_rank() {
        return ways;
    }
    // Who is alone starts it and meets nobody.
    let mut alone = Config::new("ucx:127.0.0.1:9", (0, 1), b"");
    alone.ucx = env::var_os(isometry_fabric::UCX).map(Into::into);
    match Fabric::join(&alone, Handlers::new()) {
        Ok(_) => ways.push(Over::Ucx),
        Err(why) => println!("skipped: {test} over UCX: {why}"),
    }
    ways
}

/// Starts `size` processes that run `test` again.
#[allow(dead_code, reason = "not every test has only such ranks")]
pub(crate) fn start(test: &str, size: u32, over: Over) -> Vec<Child> {
    let job = new_job(size, over);
    (0..size).map(|rank| start_one(test, over, job.variables(rank))).collect()
}

/// A meeting place that no other ranks have.
pub(crate) fn new_job(size: u32, over: Over) -> Job {
    let job = match over {
        Over::Shm | Over::Messages => Job::new(size),
        Over::Tcp | Over::NearTcp => Job::loopback(size),
        Over::Ucx | Over::NearUcx => Job::ucx(size),
    };
    job.unwrap()
}

/// Starts a process that runs `test` again, with these variables.
pub(crate) fn start_one(
    test: &str,
    over: Over,
    variables: impl IntoIterator<Item = (&'static str, String)>,
) -> Child {
    command(test, over, variables).spawn().unwrap()
}

/// What starts such a process.
pub(crate) fn command(
    test: &str,
    over: Over,
    variables: impl IntoIterator<Item = (&'static str, String)>,
) -> Command {
    // Whatever becomes of it, nobody waits for it for ever.
    let mut command = Command::new("timeout");
    command
        .args(["--signal=KILL", "120"])
        .arg(env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, format!("{over:?}"));
    let is_root = |name: &str| name == ROOT;
    let at_place = |(name, value)| (name, if is_root(name) { over.root(value) } else { value });
    command.envs(variables.into_iter().map(at_place)).stdout(Stdio::null());
    command
}

/// Waits for all of these.
pub(crate) fn ended(children: Vec<Child>) -> Vec<ExitStatus> {
    children.into_iter().map(|mut child| child.wait().unwrap()).collect()
}

/// Joins as the variables say, with some memory.
#[allow(dead_code, reason = "not every test speaks to a bare fabric")]
pub(crate) fn join(handlers: Handlers) -> Result<Fabric, Error> {
    join_with(handlers, |config| config.segment_bytes = 1 << 20)
}

/// Joins as the variables say, but for what `change` does.
pub(crate) fn join_with(
    handlers: Handlers,
    change: impl FnOnce(&mut Config),
) -> Result<Fabric, Error> {
    let mut config = Config::from_variables(|name| env::var(name).ok())?;
    change(&mut config);
    let is_bare = env::var(CHILD).is_ok_and(|over| over == format!("{:?}", Over::Messages));
    fabric(&config, is_bare, handlers)
}

/// Joins; by messages alone where it is `bare`.
pub(crate) fn fabric(config: &Config, bare: bool, handlers: Handlers) -> Result<Fabric, Error> {
    if bare {
        return Ok(Fabric::over(Box::new(Bare(Shm::join(config)?)), handlers));
    }
    Fabric::join(config, handlers)
}

/// Shared memory, or messages alone, for what is more than a fabric.
#[allow(dead_code, reason = "not every test needs it")]
pub(crate) fn conduit() -> Result<Box<dyn Conduit>, Error> {
    let mut config = Config::from_variables(|name| env::var(name).ok())?;
    config.segment_bytes = 1 << 20;
    let shm = Shm::join(&config)?;
    let is_bare = env::var(CHILD).is_ok_and(|over| over == format!("{:?}", Over::Messages));
    Ok(if is_bare { Box::new(Bare(shm)) } else { Box::new(shm) })
}

/// A conduit that carries messages and can do nothing else.
#[derive(Debug)]
struct Bare(Shm);

impl Conduit for Bare {
    fn capabilities(&self) -> Capabilities {
        // Of its own, so that nobody counts on another's.
        Capabilities { medium_bytes: 1000, ..self.0.capabilities() }
    }

    fn place(&self) -> (NodeId, u32) {
        self.0.place()
    }

    fn founders(&self) -> u32 {
        self.0.founders()
    }

    fn has(&self, peer: NodeId) -> bool {
        self.0.has(peer)
    }

    fn send(&self, to: NodeId, queue: Queue, message: &Message<'_>) -> Result<(), Refusal> {
        self.0.send(to, queue, message)
    }

    fn receive(&self, queue: Queue, run: &mut dyn FnMut(NodeId, Message<'_>)) -> usize {
        self.0.receive(queue, run)
    }

    fn sleep(&self, queues: &[Queue], is_over: &dyn Fn() -> bool, most: Option<Duration>) {
        self.0.sleep(queues, is_over, most);
    }

    fn wake(&self) {
        self.0.wake();
    }

    fn segment(&self, peer: NodeId) -> Option<&Segment> {
        self.0.segment(peer).filter(|_| peer == self.place().0)
    }

    fn segment_bytes(&self, peer: NodeId) -> u64 {
        self.0.segment_bytes(peer)
    }

    fn lost(&self, peer: NodeId) -> Option<Lost> {
        self.0.lost(peer)
    }

    fn leave(&self) {
        self.0.leave();
    }
}

/// Ranks of this process, each with handlers of its own, and with some memory.
#[allow(dead_code, reason = "most tests have a process for each rank")]
pub(crate) fn together(over: Over, handlers: Vec<Handlers>) -> Vec<Fabric> {
    let size = handlers.len() as u32;
    let [(_, root), ..] = new_job(size, over).variables(0);
    let root = over.root(root);
    let join = |rank: u32, handlers| {
        let mut config = Config::new(&root, (rank, size), b"key");
        config.segment_bytes = 1 << 20;
        config.ucx = env::var_os(isometry_fabric::UCX).map(Into::into);
        Fabric::join(&config, handlers).unwrap()
    };
    thread::scope(|scope| {
        let join = &join;
        let ranks = (0..).zip(handlers);
        let all: Vec<_> =
            ranks.map(|(rank, handlers)| scope.spawn(move || join(rank, handlers))).collect();
        all.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}
