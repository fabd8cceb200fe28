//! `iso node`: a process that is a node among others, with files that it serves and a socket at which
//! it is asked for copies.

use crate::args::Serve;
use crate::control::Control;
use crate::copy;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::lines::{Lines, Reply, Request};
use crate::metrics::Port;
use crate::output;
use crate::progress::Watch;
use isometry::fabric::{CAPACITY, Config, ErrorKind};
use isometry::{Machine, MachineBuilder};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;
use signal_hook::consts::SIGINT;
use std::cell::Cell;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// How many may ask at once.
const MOST_CLIENTS: usize = 64;

/// A signal that comes just before it sleeps is seen after this.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Serves until it is told to end.
pub(crate) fn run(args: &Serve) -> Result<(), Failure> {
    let interrupt = Interrupt::listen()?;
    let capacity = args.capacity.map(|capacity| capacity.to_string());
    let given = |name: &str| capacity.clone().filter(|_| name == CAPACITY);
    let config = Config::from_variables(|name| given(name).or_else(|| std::env::var(name).ok()));
    let config = config.map_err(|error| match error.kind() {
        ErrorKind::Usage => Failure::usage(error),
        _ => Failure::failed(error),
    })?;
    // Who comes later does not know his rank yet.
    let early =
        (!config.is_late).then(|| Control::listen(&config.root, config.rank)).transpose()?;
    let port = args.metrics.as_deref().map(Port::listen).transpose()?;
    let joined = builder(args).join_unless(&config, &|| interrupt.check().is_err());
    interrupt.check()?;
    let machine = Arc::new(joined.map_err(copy::failure)?);
    if let Some(port) = &port {
        output::aside(format_args!("metrics at http://{}/metrics", port.address));
    }
    let _metrics = port.map(|port| port.serve(&machine)).transpose()?;
    let (rank, size) = (machine.rank(), machine.size());
    let control = early.map_or_else(|| Control::listen(&config.root, rank), Ok)?;
    let path = control.path.display();
    let name = args.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    output::aside(format_args!("node{rank}{name} of {size} is ready, control socket {path}"));
    serve(&machine, &control, &interrupt);
    match interrupt.check() {
        Err(Failure::Interrupted(signal)) if i32::from(signal) != SIGINT => Ok(()),
        ended => ended,
    }
}

fn builder(args: &Serve) -> MachineBuilder {
    let mut builder = Machine::builder();
    if let Some(lanes) = args.lanes {
        builder = builder.lanes(lanes);
    }
    if let Some(bytes) = args.staging {
        builder = builder.staging(bytes);
    }
    if let Some(name) = &args.name {
        builder = builder.node_name(name);
    }
    args.files.iter().fold(builder, MachineBuilder::serve_files)
}

/// Answers whoever connects, each on a thread, until a signal asks for the end.
fn serve(machine: &Machine, control: &Control, interrupt: &Interrupt) {
    let clients = AtomicUsize::new(0);
    thread::scope(|scope| {
        while interrupt.check().is_ok() {
            // Interrupted or over: who has come is looked at anyway.
            let _ = poll(&mut [PollFd::new(&control.listener, PollFlags::IN)], Some(&TICK));
            let Ok((stream, _)) = control.listener.accept() else { continue };
            if clients.fetch_add(1, Ordering::Relaxed) >= MOST_CLIENTS {
                clients.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let clients = &clients;
            scope.spawn(move || {
                answer(machine, stream, interrupt);
                clients.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
}

/// Answers one that has connected. Where it has gone, nobody is left to be told so.
fn answer(machine: &Machine, stream: UnixStream, interrupt: &Interrupt) {
    let Ok(mut lines) = Lines::new(stream) else { return };
    let asked = match lines.hear(|_| interrupt.check()) {
        Ok(None) => return,
        Ok(Some(asked)) => Ok(asked),
        Err(failure) => Err(failure),
    };
    let client = Client { lines: &lines, interrupt, told: Cell::default() };
    let done = asked.and_then(|asked| match asked {
        Request::Status => status(machine),
        Request::Topo => Ok((cluster::to_json(&machine.topology()), String::new())),
        Request::Copy(args) => {
            copy::copied(&args, machine, &client).map(|copied| (copied.to_json(), copied.summary()))
        }
    });
    let _ = lines.say(&Reply::Ended(done.into()));
}

fn status(machine: &Machine) -> Result<(Value, String), Failure> {
    let status = machine.status().map_err(Failure::failed)?;
    Ok((status.to_json(), status.to_string()))
}

/// Who asked for a copy, at the other end of a connection.
struct Client<'a> {
    lines: &'a Lines,
    interrupt: &'a Interrupt,
    /// The progress that it was told.
    told: Cell<(u64, u64)>,
}

impl Watch for Client<'_> {
    fn planned(&self, path: &str) {
        // Where it has gone, `check` says so.
        let _ = self.lines.say(&Reply::Planned(path.to_owned()));
    }

    fn moved(&self, progress: (u64, u64)) {
        if self.told.replace(progress) != progress {
            let _ = self.lines.say(&Reply::Progress(progress.0, progress.1));
        }
    }

    fn ended(&self) {}

    /// It says nothing while a copy runs, so that whatever comes is its end.
    fn check(&self) -> Result<(), Failure> {
        self.interrupt.check()?;
        let mut fds = [PollFd::new(self.lines.stream(), PollFlags::IN | PollFlags::RDHUP)];
        match poll(&mut fds, Some(&Timespec::default())) {
            Ok(0) | Err(_) => Ok(()),
            Ok(_) => Err(Failure::Interrupted(u8::try_from(SIGINT).unwrap_or(u8::MAX))),
        }
    }
}
