//! What is asked of a running node: `iso node status`, and copies of files that are its or others'.

use crate::args::{self, Status};
use crate::control;
use crate::end;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::lines::{Lines, Reply, Request};
use crate::output;
use crate::progress::{Terminal, Watch};
use serde_json::Value;
use std::io;
use std::net::Shutdown;
use std::path::Path;

/// `iso node status`.
pub(crate) fn status(args: &Status) -> Result<(), Failure> {
    show(args.json, asked(args.socket.as_deref(), &Request::Status)?)
}

/// The cluster, as `iso topo` prints it.
pub(crate) fn topology(socket: &Path) -> Result<Value, Failure> {
    Ok(asked(Some(socket), &Request::Topo)?.0)
}

/// `iso copy` between files that a node, or others, have. Ctrl-C has the node cancel it.
pub(crate) fn copy(args: &args::Copy) -> Result<(), Failure> {
    if args.asking.trace.is_some() {
        return Err(Failure::usage("--trace is for copies without nodes"));
    }
    let [src, dst] = [&args.src, &args.dst].map(|path| end::absolute(path));
    let request = Request::Copy(Box::new(args::Copy { src: src?, dst: dst?, ..args.clone() }));
    show(args.asking.json, asked(args.asking.socket.as_deref(), &request)?)
}

fn show(as_json: bool, (json, text): (Value, String)) -> Result<(), Failure> {
    match as_json {
        true => output::json(&json),
        false => output::text(&text),
    }
}

/// Asks a node, shows how that goes, and returns what it says in the end.
fn asked(socket: Option<&Path>, request: &Request) -> Result<(Value, String), Failure> {
    let interrupt = Interrupt::listen()?;
    let gone = |e: io::Error| Failure::failed(format_args!("the node has gone: {e}"));
    let mut lines = Lines::new(control::connect(socket)?).map_err(gone)?;
    lines.say(request).map_err(gone)?;
    let terminal = Terminal::new(&interrupt)?;
    let mut is_ending = false;
    loop {
        let reply = lines.hear(|stream| {
            if terminal.check().is_err() && !is_ending {
                is_ending = true;
                // The node cancels, and then says how it ended.
                stream.shutdown(Shutdown::Write).map_err(gone)?;
            }
            Ok(())
        })?;
        match reply {
            Some(Reply::Planned(path)) => terminal.planned(&path),
            Some(Reply::Progress(done, total)) => terminal.moved((done, total)),
            Some(Reply::Ended(last)) => {
                let last = last.outcome();
                terminal.ended();
                if last.is_err() {
                    // By which signal only this process knows.
                    interrupt.check()?;
                }
                return last;
            }
            None => return Err(Failure::failed("the node has gone")),
        }
    }
}
