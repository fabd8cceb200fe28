//! A rank of another host, started by ssh.
//!
//! **Hazard.** Command lines are there for all to read; ssh runs what it is told through whatever shell a
//! user has; and what it has started goes on when it is killed. **Guarantee.** The key goes by standard
//! input only, and a rank ends with its connection, whichever end of it is lost. **Structure.** ssh starts
//! `/bin/sh`, which reads a [`script`] from standard input: it starts the rank and waits for it, and a part
//! of it waits for the end of the input, which stays open as long as the launcher holds its [`Line`].

use super::GRACE;
use super::hosts::Host;
use isometry::fabric::Job;
use rustix::io::ioctl_fionbio;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};

/// Nobody is asked for a password, and a host that is not there, or no more, is given up.
const OPTIONS: [&str; 9] = [
    "-T",
    "-o",
    "BatchMode=yes",
    "-o",
    "ConnectTimeout=10",
    "-o",
    "ServerAliveInterval=5",
    "-o",
    "ServerAliveCountMax=3",
];

/// What reaches `host`, and runs a shell there.
pub(crate) fn command(ssh: &OsStr, host: &Host) -> Command {
    let mut command = Command::new(ssh);
    command.args(OPTIONS).arg(host.for_ssh()).arg("/bin/sh").stdin(Stdio::piped());
    // Ctrl-C is the launcher's to hear, so that what ranks say last still comes.
    command.process_group(0);
    command
}

/// What that shell is to do: nothing before it has read all of this.
///
/// The rank leads a process group, which is asked to end where the input ends, and ended after a while; what
/// it has left behind when it ends is ended too.
///
/// # Errors
/// Where this process has no working directory.
pub(crate) fn script(
    job: &Job,
    (rank, host): (u32, &Host),
    program: &[OsString],
) -> io::Result<Vec<u8>> {
    let dir = quoted(env::current_dir()?.as_os_str());
    let elsewhere = format!("iso: {host} has no such directory; rank {rank} starts in ");
    let mut script = b"{\nexec 3<&0 </dev/null\ncd -- ".to_vec();
    let mut say = |parts: &[&[u8]]| parts.iter().for_each(|part| script.extend_from_slice(part));
    say(&[&dir, b" 2>/dev/null || echo ", &quoted(elsewhere.as_ref()), b"\"$PWD\" >&2\n"]);
    for (name, value) in job.variables(rank) {
        say(&[b"export ", name.as_bytes(), b"=", &quoted(value.as_ref()), b"\n"]);
    }
    say(&[b"setsid"]);
    program.iter().for_each(|word| say(&[b" ", &quoted(word)]));
    say(&[WATCH[0], GRACE.as_secs().to_string().as_bytes(), WATCH[1]]);
    Ok(script)
}

/// Before and after the seconds that a rank has to end.
const WATCH: [&[u8]; 2] = [
    b" 3<&- &
rank=$!
(
trap '' HUP INT TERM
while read -r line; do :; done
kill -s TERM -- \"-$rank\" || kill -s TERM \"$rank\"
sleep ",
    b"
kill -s KILL -- \"-$rank\"
) <&3 >/dev/null 2>&1 &
watch=$!
exec 3<&-
wait \"$rank\"
code=$?
kill -s KILL \"$watch\"
kill -s KILL -- \"-$rank\" 2>/dev/null
exit \"$code\"
}
",
];

/// As one word of a shell.
fn quoted(word: &OsStr) -> Vec<u8> {
    let parts: Vec<_> = word.as_bytes().split(|&byte| byte == b'\'').collect();
    [b"'", &parts.join(&br"'\''"[..])[..], b"'"].concat()
}

/// The standard input of a host's shell; once it is dropped, the rank there is asked to end.
pub(crate) struct Line {
    pub(crate) pipe: ChildStdin,
    unsent: Vec<u8>,
}

impl Line {
    /// Begins to send a script, of which the rest goes with [`Line::send`].
    pub(crate) fn new(pipe: ChildStdin, script: Vec<u8>) -> io::Result<Line> {
        ioctl_fionbio(&pipe, true)?;
        let mut line = Line { pipe, unsent: script };
        line.send();
        Ok(line)
    }

    /// Whether there is more to send.
    pub(crate) fn is_pending(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Sends what there is room for.
    pub(crate) fn send(&mut self) {
        while self.is_pending() {
            match self.pipe.write(&self.unsent) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // Nobody reads it any more: ssh is about to say why.
                Err(_) => self.unsent.clear(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::ffi::OsStringExt;

    fn word() -> impl Strategy<Value = Vec<u8>> {
        let odd = prop::sample::select(b"'\"\\$`!*~ \t\n#&;|<>(){}-=\xff".to_vec());
        prop::collection::vec(prop_oneof![odd, 1_u8..], 0..12)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_shell_reads_words_as_they_were(words in prop::collection::vec(word(), 1..20)) {
            let all = words.iter().map(|word| quoted(&OsString::from_vec(word.clone())));
            let script = [b"printf '%s\\0' ".to_vec(), all.collect::<Vec<_>>().join(&b' ')].concat();
            let shell = Command::new("sh").arg("-c").arg(OsString::from_vec(script)).output().unwrap();
            let read: Vec<_> = shell.stdout.split_inclusive(|&byte| byte == 0).collect();
            let written: Vec<_> = words.iter().map(|word| [&word[..], &[0]].concat()).collect();
            prop_assert_eq!(read, written);
        }
    }
}
