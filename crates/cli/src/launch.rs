//! `iso launch`: a program several times, as ranks of this machine or of others.
//!
//! When a rank fails, or when the launcher is told to end, it asks the ranks that are left to end, and
//! after a while ends them.

pub(crate) mod hosts;
mod remote;

use crate::args::Launch;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output;
use hosts::Host;
use isometry::fabric::{Error, Job};
use remote::Line;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{self, stderr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long ranks have to end when they are asked to.
const GRACE: Duration = Duration::from_secs(3);

/// A signal that comes just before it sleeps is seen after this.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

pub(crate) fn run(args: &Launch) -> Result<(), Failure> {
    let hosts = hosts::deal(&args.reach, args.ranks)?;
    let job = job(args, &hosts).map_err(Failure::usage)?;
    let interrupt = Interrupt::listen()?;
    let mut ranks = Ranks { hosts, running: Vec::new(), ended: Vec::new(), asked: None };
    let started = (0..args.ranks).try_for_each(|rank| ranks.start(&job, rank, args));
    if started.is_err() {
        ranks.ask();
    }
    ranks.wait(&interrupt)?;
    interrupt.check()?;
    started?;
    let failed = ranks.failed().map(|failed| ranks.failure(failed));
    ranks.ended.sort_by_key(|(rank, _)| *rank);
    if args.json {
        let ranks: Vec<_> = ranks.ended.iter().map(|ended| ranks.shown(ended)).collect();
        output::json(&json!({ "ranks": ranks }))?;
    }
    failed.map_or(Ok(()), Err)
}

/// Ranks of one host meet in shared memory, unless it is to be TCP, others at the first one's host.
fn job(args: &Launch, hosts: &[Host]) -> Result<Job, Error> {
    let by_tcp = args.tcp || args.reach.port.is_some();
    match hosts {
        [] if args.tcp => Job::loopback(args.ranks),
        [first, others @ ..] if by_tcp || !others.iter().all(|host| host.is(first)) => {
            Job::across(first.for_root(), args.reach.port, args.ranks)
        }
        _ => Job::new(args.ranks),
    }
}

/// The command of a rank of this machine.
fn here(job: &Job, rank: u32, program: &[OsString]) -> Command {
    let (program, rest) = program.split_first().expect("it is a required argument");
    let mut command = Command::new(program);
    command.args(rest).envs(job.variables(rank));
    if rank > 0 {
        command.stdin(Stdio::null());
    }
    command
}

struct Ranks {
    /// By rank; none where all are of this machine.
    hosts: Vec<Host>,
    running: Vec<Running>,
    /// In the order in which they ended, before they were asked to.
    ended: Vec<(u32, ExitStatus)>,
    /// When those that run were asked to end.
    asked: Option<Instant>,
}

struct Running {
    rank: u32,
    /// The rank, or what reaches its host.
    child: Child,
    /// Names this process and no later one.
    pidfd: OwnedFd,
    /// To a rank of another host, until it is asked to end.
    line: Option<Line>,
}

impl Running {
    /// Watches `child`, which takes `script` as its input.
    fn watch(rank: u32, mut child: Child, script: Option<Vec<u8>>) -> io::Result<Running> {
        let pipe = child.stdin.take();
        let line = pipe.zip(script).map(|(pipe, script)| Line::new(pipe, script)).transpose();
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        match line.and_then(|line| Ok((line, pidfd?))) {
            Ok((line, pidfd)) => Ok(Running { rank, child, pidfd, line }),
            Err(error) => {
                // Nobody else waits for it, so its number is still its own.
                let _ = child.kill().and_then(|()| child.wait());
                Err(error)
            }
        }
    }
}

impl Ranks {
    fn start(&mut self, job: &Job, rank: u32, args: &Launch) -> Result<(), Failure> {
        let host = self.hosts.get(rank as usize);
        let mut command = match host {
            Some(host) => remote::command(&args.reach.ssh, host),
            None => here(job, rank, &args.program),
        };
        let program = command.get_program().to_owned();
        let cant =
            |e: io::Error| Failure::failed(format_args!("can't start {}: {e}", program.display()));
        if args.json {
            command.stdout(stderr().as_fd().try_clone_to_owned().map_err(cant)?);
        }
        let script = host.map(|host| remote::script(job, (rank, host), &args.program));
        let script = script.transpose().map_err(cant)?;
        let child = command.spawn().map_err(cant)?;
        self.running.push(Running::watch(rank, child, script).map_err(cant)?);
        Ok(())
    }

    /// Asks all that run to end, once.
    fn ask(&mut self) {
        if self.asked.is_some() {
            return;
        }
        self.asked = Some(Instant::now());
        for rank in &mut self.running {
            if rank.line.take().is_none() {
                // Who has ended hears nothing.
                let _ = pidfd_send_signal(&rank.pidfd, Signal::TERM);
            }
        }
    }

    /// Ends those that were asked to long ago. A rank of another host has been ended there by then, unless
    /// that host is no longer reached.
    fn end(&self) {
        let grace = if self.hosts.is_empty() { GRACE } else { 2 * GRACE };
        if self.asked.is_some_and(|asked| asked.elapsed() > grace) {
            for rank in &self.running {
                let _ = pidfd_send_signal(&rank.pidfd, Signal::KILL);
            }
        }
    }

    /// Sleeps until one of them ends or takes more of what it is sent, or a while has gone by.
    fn sleep(&mut self) {
        let pidfds = self.running.iter().map(|rank| PollFd::new(&rank.pidfd, PollFlags::IN));
        let lines = self.running.iter().filter_map(|rank| rank.line.as_ref());
        let pending = lines.filter(|line| line.is_pending());
        let pipes = pending.map(|line| PollFd::new(&line.pipe, PollFlags::OUT));
        let mut fds: Vec<_> = pidfds.chain(pipes).collect();
        // Interrupted or over: all are looked at anyway.
        let _ = poll(&mut fds, Some(&TICK));
        self.running.iter_mut().filter_map(|rank| rank.line.as_mut()).for_each(Line::send);
    }

    /// Waits until none runs.
    fn wait(&mut self, interrupt: &Interrupt) -> Result<(), Failure> {
        while !self.running.is_empty() {
            if interrupt.check().is_err() || self.failed().is_some() {
                self.ask();
            }
            self.end();
            self.sleep();
            self.reap()?;
        }
        Ok(())
    }

    fn reap(&mut self) -> Result<(), Failure> {
        for mut rank in std::mem::take(&mut self.running) {
            let lost = |e| Failure::failed(format_args!("can't wait for rank {}: {e}", rank.rank));
            match rank.child.try_wait().map_err(lost)? {
                Some(status) => self.ended.push((rank.rank, status)),
                None => self.running.push(rank),
            }
        }
        Ok(())
    }

    /// The first that failed.
    fn failed(&self) -> Option<&(u32, ExitStatus)> {
        self.ended.iter().find(|(_, status)| !status.success())
    }

    fn failure(&self, (rank, status): &(u32, ExitStatus)) -> Failure {
        let Some(host) = self.hosts.get(*rank as usize) else {
            return Failure::failed(format_args!("rank {rank}: {status}"));
        };
        let unreached = match status.code() {
            Some(255) => ", with which ssh ends where it can't reach a host",
            _ => "",
        };
        Failure::failed(format_args!("rank {rank} at {host}: {status}{unreached}"))
    }

    fn shown(&self, (rank, status): &(u32, ExitStatus)) -> Value {
        let mut shown = json!({ "rank": rank, "code": status.code(), "signal": status.signal() });
        if let Some(host) = self.hosts.get(*rank as usize) {
            shown["host"] = json!(host.to_string());
        }
        shown
    }
}
