//! The whole group, on its smallest cases.

use super::*;
use crate::settings::{Output, Stop};
use regex::Regex;

/// A peer that never does anything.
struct Fake(&'static str);

impl Peer for Fake {
    fn name(&self) -> &str {
        self.0
    }

    fn version(&self) -> Option<String> {
        (self.0 == "idle").then(|| "1.2".to_owned())
    }

    fn prepare<'a>(&mut self, task: &Task<'a>) -> Result<Option<Ready<'a>>, Error> {
        assert_eq!(task.spans.src.1, 256 * 256);
        match self.0 {
            "idle" => {
                let run: Run<'a> = Box::new(|| Ok(()));
                Ok(Some(run.into()))
            }
            "broken" => Err(Error::part("preparing")("it is broken")),
            _ => Ok(None),
        }
    }
}

#[test]
fn every_contender_is_checked_and_those_that_fail_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings {
        filter: Some(Regex::new("^transpose 256x256 u1").unwrap()),
        runs: Some(1),
        budget: Duration::from_secs(1),
        out: dir.path().to_owned(),
        files: dir.path().to_owned(),
        output: Output::Error,
        stop: Stop::default(),
    };
    let peers = ["idle", "broken", "unable"].map(|name| Box::new(Fake(name)) as Box<dyn Peer>);
    let machine = Machine::builder().assume(true).open().unwrap();
    let report = run_on(machine, &settings, peers.into()).unwrap();
    assert_eq!(report.wrong, Vec::<String>::new());
    let cases = report.json["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 2);
    for (case, threads) in cases.iter().zip([1, 2]) {
        assert_eq!((&case["threads"], &case["bytes"]), (&threads.into(), &65536.into()));
        let notes = &case["notes"];
        assert_eq!(notes["idle"], "WRONG RESULT");
        assert!(notes["broken"].as_str().unwrap().contains("it is broken"));
        assert!(notes["unable"].as_str().unwrap().contains("unable"));
        let seconds = case["seconds"].as_object().unwrap();
        assert!(seconds.contains_key("isometry") && seconds.contains_key("memcpy"));
        assert!(!seconds.contains_key("idle") && !seconds.contains_key("unable"));
        assert_eq!(seconds.contains_key(PATTERN), threads == 1);
        assert_eq!(seconds.contains_key(ALONE), threads == 2);
    }
    assert_eq!(report.json["versions"]["idle"], "1.2");
    assert!(report.json["versions"].get("broken").is_none());
    let absent = report.json["absent"].as_array().unwrap();
    assert!(absent.contains(&"numpy".into()) && absent.contains(&"pytorch".into()));
    assert_eq!(report.void, ["numpy", "pytorch", "onednn"]);
    let summary = report.json["summary"].as_array().unwrap();
    assert!(summary.last().unwrap().as_str().unwrap().contains("VOID"), "{summary:?}");
}

#[test]
fn sizes_are_told_by_both_sides() {
    assert!(size_label(2 << 20, Some(8 << 20)).starts_with("in the"));
    assert!(size_label(8 << 20, Some(8 << 20)).starts_with("about the"));
    assert!(size_label(32 << 20, Some(8 << 20)).starts_with("beyond the"));
}
