//! What a node and who asks it say to each other: one JSON object a line.

use crate::args::Copy;
use crate::failure::{Failure, interrupted_code};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long a read takes before it is looked whether somebody wants the end.
const STEP: Duration = Duration::from_millis(50);

/// How long who is told something may take to hear it.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest line.
const MOST_BYTES: usize = 16 << 20;

/// What is asked of a node: `{"ask": "status"}`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "lowercase")]
pub(crate) enum Request {
    /// What it is at.
    Status,
    /// What the cluster is.
    Topo,
    /// A copy, with the arguments of `iso copy` by their names. Who closes its side cancels it.
    Copy(Box<Copy>),
}

/// What it says: any number of `planned` and `progress`, then `ended`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Reply {
    /// The path of a copy.
    Planned(String),
    /// Bytes that were copied, and in all.
    Progress(u64, u64),
    /// The last reply.
    Ended(Ended),
}

/// How it ended.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Ended {
    /// What was asked for, as JSON and in words.
    Done { json: Value, text: String },
    /// Why it failed, and the exit code that this means.
    Failed { code: u8, why: String },
}

impl From<Result<(Value, String), Failure>> for Ended {
    fn from(outcome: Result<(Value, String), Failure>) -> Self {
        let failure = match outcome {
            Ok((json, text)) => return Ended::Done { json, text },
            Err(failure) => failure,
        };
        let code = failure.code();
        let why = match failure {
            Failure::Usage(why) | Failure::Failed(why) => why,
            Failure::Interrupted(_) => "interrupted".to_owned(),
            Failure::Explained | Failure::Closed => String::new(),
        };
        Ended::Failed { code, why }
    }
}

impl Ended {
    /// What was asked for, as JSON and in words, or why it failed.
    pub(crate) fn outcome(self) -> Result<(Value, String), Failure> {
        match self {
            Ended::Done { json, text } => Ok((json, text)),
            Ended::Failed { code: 2, why } => Err(Failure::Usage(why)),
            Ended::Failed { code, .. } if code > interrupted_code(0) => {
                Err(Failure::Interrupted(code - interrupted_code(0)))
            }
            Ended::Failed { why, .. } => Err(Failure::Failed(why)),
        }
    }
}

/// A connection whose lines come and go.
pub(crate) struct Lines {
    reader: BufReader<UnixStream>,
    line: Vec<u8>,
}

impl Lines {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Lines> {
        stream.set_read_timeout(Some(STEP))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Lines { reader: BufReader::new(stream), line: Vec::new() })
    }

    pub(crate) fn stream(&self) -> &UnixStream {
        self.reader.get_ref()
    }

    /// Says one thing.
    pub(crate) fn say(&self, what: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(what)?;
        line.push(b'\n');
        self.stream().write_all(&line)
    }

    /// What the other says next; `None` once it has gone. `check` is called while nothing comes.
    pub(crate) fn hear<T: for<'a> Deserialize<'a>>(
        &mut self,
        mut check: impl FnMut(&UnixStream) -> Result<(), Failure>,
    ) -> Result<Option<T>, Failure> {
        loop {
            match self.fill() {
                Ok(None) => return Ok(None),
                Ok(Some(true)) => {
                    let line = std::mem::take(&mut self.line);
                    return serde_json::from_slice(&line).map(Some).map_err(Failure::usage);
                }
                Ok(Some(false)) => {}
                Err(e) if is_pause(&e) => check(self.stream())?,
                Err(e) => return Err(Failure::failed(format_args!("the connection: {e}"))),
            }
        }
    }

    /// Reads on; whether the line is whole, or `None` at the end.
    fn fill(&mut self) -> io::Result<Option<bool>> {
        let bytes = self.reader.fill_buf()?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let end = bytes.iter().position(|&byte| byte == b'\n');
        let used = end.map_or(bytes.len(), |end| end + 1);
        if self.line.len() + used > MOST_BYTES {
            return Err(io::Error::new(ErrorKind::InvalidData, "the line is too long"));
        }
        self.line.extend_from_slice(&bytes[..used]);
        self.reader.consume(used);
        Ok(Some(end.is_some()))
    }
}

fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_and_the_end_is_told() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let mut lines = Lines::new(here).unwrap();
        there.write_all(b"{\"progress\": [1, ").unwrap();
        let mut pauses = 0;
        let reply = lines.hear::<Reply>(|_| {
            pauses += 1;
            there.write_all(b"2]}\n{\"planned\": \"a\"}\n{").unwrap();
            Ok(())
        });
        assert!(matches!(reply, Ok(Some(Reply::Progress(1, 2)))) && pauses == 1);
        let reply = lines.hear::<Reply>(|_| Ok(()));
        assert!(matches!(reply, Ok(Some(Reply::Planned(path))) if path == "a"));
        let stopped = lines.hear::<Reply>(|_| Err(Failure::Interrupted(2)));
        assert_eq!(stopped.unwrap_err(), Failure::Interrupted(2));
        there.write_all(b"\n").unwrap();
        assert!(matches!(lines.hear::<Reply>(|_| Ok(())), Err(Failure::Usage(_))));
        drop(there);
        assert!(matches!(lines.hear::<Reply>(|_| Ok(())), Ok(None)));
    }

    #[test]
    fn a_failure_is_the_same_on_the_other_side() {
        for failure in [
            Failure::Usage("a".to_owned()),
            Failure::Failed("b".to_owned()),
            Failure::Interrupted(2),
        ] {
            let ended = Ended::from(Err(failure.clone()));
            assert_eq!(ended.outcome().unwrap_err(), failure);
        }
    }

    #[test]
    fn a_copy_is_asked_for_by_the_names_of_its_arguments() {
        let text =
            r#"{"ask": "copy", "src": "node0:/a", "dst": "/b", "layout": "yx", "priority": -3}"#;
        let Ok(Request::Copy(copy)) = serde_json::from_str(text) else { panic!("{text}") };
        assert_eq!((copy.layout.as_deref(), copy.priority, copy.verify), (Some("yx"), -3, false));
    }
}
