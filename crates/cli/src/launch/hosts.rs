//! Which hosts ranks are started on.

use crate::args::Reach;
use crate::failure::Failure;
use std::fmt;
use std::fs;
use std::path::Path;

/// A host, and how many ranks in a row it gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    /// As ssh takes it, `USER@` before it and brackets around an IPv6 address where they were given.
    name: String,
    /// At least 1.
    slots: u32,
}

impl Host {
    /// What ssh is told.
    pub(crate) fn for_ssh(&self) -> String {
        self.name.replace(['[', ']'], "")
    }

    /// What others call it by, before a colon and a port.
    pub(crate) fn for_root(&self) -> &str {
        self.name.rsplit_once('@').map_or(&self.name, |(_, host)| host)
    }

    /// Whether both are one, as far as names tell.
    pub(crate) fn is(&self, other: &Host) -> bool {
        self.name == other.name
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// `HOST`, or `HOST:SLOTS`.
pub(crate) fn host(text: &str) -> Result<Host, String> {
    let address = text.rfind(']').map_or(0, |at| at + 1);
    let (name, slots) = match text[address..].find(':') {
        Some(at) => (&text[..address + at], self::slots(&text[address + at + 1..])?),
        None => (text, 1),
    };
    let is_odd = |c: char| c.is_whitespace() || c.is_control();
    // What starts with `-` would be an option of ssh.
    if name.is_empty() || name.starts_with('-') || name.contains(is_odd) {
        return Err(format!("`{name}` is no host"));
    }
    Ok(Host { name: name.to_owned(), slots })
}

fn slots(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|&slots| slots > 0);
    number.ok_or_else(|| {
        format!("`{text}` is no number of slots (an IPv6 address stands in brackets)")
    })
}

/// The host of a line of a file, if it has one.
fn line(text: &str) -> Result<Option<Host>, String> {
    let mut words = text.split('#').next().unwrap_or_default().split_whitespace();
    let Some(mut named) = words.next().map(host).transpose()? else { return Ok(None) };
    for word in words {
        let Some(("slots", number)) = word.split_once('=') else {
            return Err(format!("`{word}` should be `slots=N`"));
        };
        named.slots = slots(number)?;
    }
    Ok(Some(named))
}

fn all(text: &str) -> Result<Vec<Host>, String> {
    let numbered = text.lines().enumerate();
    let hosts = numbered.filter_map(|(at, text)| {
        line(text).map_err(|why| format!("line {}: {why}", at + 1)).transpose()
    });
    let hosts = hosts.collect::<Result<Vec<_>, _>>()?;
    if hosts.is_empty() { Err("it names no host".to_owned()) } else { Ok(hosts) }
}

/// The host of each rank, each host in turn as often as it has slots; none where no host was named.
pub(crate) fn deal(reach: &Reach, ranks: u32) -> Result<Vec<Host>, Failure> {
    let read = |path: &Path| {
        let cant = |why: &dyn fmt::Display| format!("{}: {why}", path.display());
        let text = fs::read_to_string(path).map_err(|e| Failure::failed(cant(&e)))?;
        all(&text).map_err(|why| Failure::usage(cant(&why)))
    };
    let read = reach.hostfile.as_deref().map(read).transpose()?;
    let hosts = read.as_ref().unwrap_or(&reach.hosts);
    let slots = hosts.iter().flat_map(|host| (0..host.slots).map(move |_| host));
    Ok(slots.cycle().take(ranks as usize).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dealt(hosts: &[&str], ranks: u32) -> String {
        let hosts = hosts.iter().map(|text| host(text).unwrap()).collect();
        let reach = Reach { hosts, hostfile: None, port: None, ssh: "ssh".into() };
        let names = deal(&reach, ranks).unwrap();
        names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn ranks_are_dealt_by_slots_and_then_once_more() {
        assert_eq!(dealt(&["a", "b:2"], 4), "a b b a");
        assert_eq!(dealt(&["a:3", "b"], 2), "a a");
        assert_eq!(dealt(&["a:4294967295"], 2), "a a");
        assert_eq!(dealt(&[], 2), "");
    }

    #[test]
    fn a_host_has_a_name_for_ssh_and_one_for_others() {
        let names = |text: &str| {
            let host = host(text).unwrap();
            (host.for_ssh(), host.for_root().to_owned(), host.slots)
        };
        assert_eq!(names("node-3"), ("node-3".into(), "node-3".into(), 1));
        assert_eq!(names("me@node:7"), ("me@node".into(), "node".into(), 7));
        assert_eq!(names("me@[fe80::1]:2"), ("me@fe80::1".into(), "[fe80::1]".into(), 2));
        assert_eq!(names("[::1]"), ("::1".into(), "[::1]".into(), 1));
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for wrong in ["", ":2", "a:", "a:0", "a:-1", "a:b", "fe80::1", "-oProxyCommand=x", "a b"] {
            assert!(host(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_file_names_hosts_as_mpirun_reads_them() {
        let hosts = all("# all of them\na slots=2\n\n  b # the other\nc:3\n").unwrap();
        let slots: Vec<_> = hosts.iter().map(|host| (host.name.as_str(), host.slots)).collect();
        assert_eq!(slots, [("a", 2), ("b", 1), ("c", 3)]);
        for (wrong, named) in
            [("a\nb slot=2", "line 2"), ("a slots=x", "line 1"), ("#a", "no host")]
        {
            let why = all(wrong).unwrap_err();
            assert!(why.contains(named), "{why}");
        }
    }
}
