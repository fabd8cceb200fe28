//! Runs the real binary.
#![allow(dead_code, reason = "each test file uses its part")]

use std::path::Path;
use std::process::{Command, Output};

/// What a run left.
pub(crate) struct Ran {
    /// The exit code; -1 after a signal.
    pub(crate) code: i32,
    /// Standard output.
    pub(crate) stdout: String,
    /// Standard error.
    pub(crate) stderr: String,
}

impl Ran {
    /// Checks that it exited with 0.
    pub(crate) fn succeeds(&self) {
        assert_eq!(self.code, 0, "{}", self.stderr);
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        let code = output.status.code().unwrap_or(-1);
        Ran { code, stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

/// `iso` with `args`, not yet started; no signal is ignored, whatever whoever runs the tests
/// ignores.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT,TERM,HUP", env!("CARGO_BIN_EXE_iso")]).args(args);
    command
}

/// Runs `iso` with `args` to its end.
pub(crate) fn iso(args: &[&str]) -> Ran {
    command(args).output().expect("iso starts").into()
}

/// A cluster file that we ship.
pub(crate) fn cluster(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("a workspace");
    root.join("clusters").join(name).to_str().expect("UTF-8").to_owned()
}
