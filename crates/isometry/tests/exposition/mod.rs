//! A strict reader of Prometheus' text format 0.0.4, for the tests of those who write it.

use std::collections::{BTreeMap, BTreeSet};

/// The samples of a text, by their names and labels as they stand there: `up{node="node0"}`. Panics
/// where it is not in the format, or not as Prometheus recommends.
pub(crate) fn samples(text: &str) -> BTreeMap<String, f64> {
    assert!(text.ends_with('\n'), "the last line does not end");
    let (mut all, mut families) = (BTreeMap::new(), BTreeSet::new());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let help = line.strip_prefix("# HELP ").unwrap_or_else(|| panic!("no help: {line}"));
        let (family, help) = help.split_once(' ').unwrap();
        assert!(is_name(family) && help.ends_with('.') && !help.contains('\\'), "{line}");
        assert!(families.insert(family), "{family} is there twice");
        let kind = lines.next().and_then(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        let kind = kind.filter(|kind| kind.0 == family).expect("the type of what was named").1;
        let mut buckets = Vec::new();
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            let (name, labels, value) = parsed(line);
            let suffix = name.strip_prefix(family).unwrap_or_else(|| panic!("{line}: {family}"));
            let of_histogram = ["_bucket", "_sum", "_count"].contains(&suffix);
            assert_eq!(of_histogram, kind == "histogram", "{line}");
            assert!(of_histogram || suffix.is_empty(), "{line}");
            assert_eq!(family.ends_with("_total"), kind == "counter", "{line}");
            assert!(value >= 0.0, "{line}");
            match suffix {
                "_bucket" => buckets.push((labels.last().unwrap().1.clone(), value)),
                "_count" => check_buckets(&std::mem::take(&mut buckets), value),
                _ => {}
            }
            let key = line.rsplit_once(' ').unwrap().0;
            assert!(all.insert(key.to_owned(), value).is_none(), "{key} is there twice");
        }
        assert!(["counter", "gauge", "histogram"].contains(&kind), "{family} is a {kind}");
    }
    all
}

/// That none has lost anything.
pub(crate) fn assert_grown(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>) {
    let is_counter = |key: &str| {
        let name = key.split('{').next().unwrap();
        ["_total", "_bucket", "_sum", "_count"].iter().any(|end| name.ends_with(end))
    };
    for (key, value) in before.iter().filter(|(key, _)| is_counter(key)) {
        let now = after.get(key).unwrap_or_else(|| panic!("{key} is gone"));
        assert!(now >= value, "{key} fell from {value} to {now}");
    }
}

/// Name, labels and value of a sample.
fn parsed(line: &str) -> (&str, Vec<(String, String)>, f64) {
    let (name, rest) = line.split_once('{').unwrap_or_else(|| panic!("no labels: {line}"));
    let mut labels = Vec::new();
    let mut rest = rest;
    loop {
        let (label, quoted) = rest.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
        assert!(is_name(label) && !label.contains(':'), "{line}");
        let (value, behind) = unquoted(quoted);
        assert!(labels.iter().all(|(other, _)| other != label), "{label} twice: {line}");
        labels.push((label.to_owned(), value));
        match behind.strip_prefix(',') {
            Some(more) => rest = more,
            None => rest = behind.strip_prefix("} ").unwrap_or_else(|| panic!("{line}")),
        }
        if behind.starts_with('}') {
            return (name, labels, rest.parse().unwrap_or_else(|e| panic!("{line}: {e}")));
        }
    }
}

/// What stands before the next quote, and what behind it.
fn unquoted(text: &str) -> (String, &str) {
    let (mut value, mut chars) = (String::new(), text.char_indices());
    while let Some((at, next)) = chars.next() {
        match next {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.push(match chars.next().map(|escaped| escaped.1) {
                Some('n') => '\n',
                Some(plain @ ('\\' | '"')) => plain,
                other => panic!("escaped {other:?}: {text}"),
            }),
            plain => value.push(plain),
        }
    }
    panic!("no end: {text}")
}

fn is_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    text.chars().all(is_plain) && text.starts_with(|c: char| !c.is_ascii_digit())
}

/// That buckets ascend to infinity, and hold `count`.
fn check_buckets(buckets: &[(String, f64)], count: f64) {
    let bounds: Vec<f64> = buckets.iter().map(|(bound, _)| bound.parse().unwrap()).collect();
    assert!(bounds.is_sorted_by(|a, b| a < b), "{bounds:?}");
    assert!(buckets.is_sorted_by(|a, b| a.1 <= b.1), "{buckets:?}");
    assert_eq!(buckets.last(), Some(&("+Inf".to_owned(), count)));
}
