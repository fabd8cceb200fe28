//! `iso launch`: a program several times, as ranks of one machine.
//!
//! When a rank fails, or when the launcher is told to end, it asks the ranks that are left to end, and
//! after a while ends them.

use crate::args::Launch;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output;
use isometry::fabric::Job;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::{Value, json};
use std::io::stderr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long ranks have to end when they are asked to.
const GRACE: Duration = Duration::from_secs(3);

/// A signal that comes just before it sleeps is seen after this.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

pub(crate) fn run(args: &Launch) -> Result<(), Failure> {
    let job = if args.tcp { Job::loopback(args.ranks) } else { Job::new(args.ranks) };
    let job = job.map_err(Failure::usage)?;
    let interrupt = Interrupt::listen()?;
    let mut ranks = Ranks { running: Vec::new(), ended: Vec::new(), asked: None };
    let started = (0..args.ranks).try_for_each(|rank| ranks.start(&job, rank, args));
    if started.is_err() {
        ranks.ask();
    }
    ranks.wait(&interrupt)?;
    interrupt.check()?;
    started?;
    let failed = ranks.failed().copied();
    ranks.ended.sort_by_key(|(rank, _)| *rank);
    if args.json {
        let ranks: Vec<_> = ranks.ended.iter().map(shown).collect();
        output::json(&json!({ "ranks": ranks }))?;
    }
    match failed {
        Some((rank, status)) => Err(Failure::failed(format_args!("rank {rank}: {status}"))),
        None => Ok(()),
    }
}

fn shown((rank, status): &(u32, ExitStatus)) -> Value {
    json!({ "rank": rank, "code": status.code(), "signal": status.signal() })
}

struct Ranks {
    running: Vec<Running>,
    /// In the order in which they ended, before they were asked to.
    ended: Vec<(u32, ExitStatus)>,
    /// When those that run were asked to end.
    asked: Option<Instant>,
}

struct Running {
    rank: u32,
    child: Child,
    /// Names this process and no later one.
    pidfd: OwnedFd,
}

impl Ranks {
    fn start(&mut self, job: &Job, rank: u32, args: &Launch) -> Result<(), Failure> {
        let (program, rest) = args.program.split_first().expect("it is a required argument");
        let mut command = Command::new(program);
        command.args(rest).envs(job.variables(rank));
        if rank > 0 {
            command.stdin(Stdio::null());
        }
        let cant = |e: std::io::Error| {
            Failure::failed(format_args!("can't start {}: {e}", program.display()))
        };
        if args.json {
            command.stdout(stderr().as_fd().try_clone_to_owned().map_err(cant)?);
        }
        let mut child = command.spawn().map_err(cant)?;
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        match pidfd {
            Ok(pidfd) => self.running.push(Running { rank, child, pidfd }),
            Err(error) => {
                // Nobody else waits for it, so its number is still its own.
                let _ = child.kill().and_then(|()| child.wait());
                return Err(cant(error.into()));
            }
        }
        Ok(())
    }

    /// Asks all that run to end, once.
    fn ask(&mut self) {
        if self.asked.is_none() {
            self.asked = Some(Instant::now());
            self.signal(Signal::TERM);
        }
    }

    fn signal(&self, signal: Signal) {
        for rank in &self.running {
            // Who has ended hears nothing.
            let _ = pidfd_send_signal(&rank.pidfd, signal);
        }
    }

    /// Waits until none runs.
    fn wait(&mut self, interrupt: &Interrupt) -> Result<(), Failure> {
        while !self.running.is_empty() {
            if interrupt.check().is_err() || self.failed().is_some() {
                self.ask();
            }
            if self.asked.is_some_and(|asked| asked.elapsed() > GRACE) {
                self.signal(Signal::KILL);
            }
            let fds = self.running.iter().map(|rank| PollFd::new(&rank.pidfd, PollFlags::IN));
            let mut fds: Vec<_> = fds.collect();
            // Interrupted or over: all are looked at anyway.
            let _ = poll(&mut fds, Some(&TICK));
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
}
