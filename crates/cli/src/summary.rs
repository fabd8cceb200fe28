//! What the cases of a workload come to, a line for each; and what is said of one with many copies.

use crate::topo;
use crate::workload::Played;
use model::Time;
use sim::{Baseline, Case, CaseReport};
use std::cmp::Reverse;

/// A case of more copies is summed up, and a line printed for these of them only.
const MOST_LINES: usize = 64;
const SLOWEST: usize = 10;

/// The copies that have a line: all, or those of many that took longest, first the one that took
/// longest of all.
pub(crate) fn told(played: &Played<'_>) -> Vec<usize> {
    let copies = &played.ours.copies;
    let mut told: Vec<usize> = (0..copies.len()).collect();
    if sums_up(played) {
        told.sort_by_key(|&at| Reverse(copies[at].ended.since(copies[at].launched)));
        told.truncate(SLOWEST);
    }
    told
}

/// Whether a case has more copies than lines.
pub(crate) fn sums_up(played: &Played<'_>) -> bool {
    played.ours.copies.len() > MOST_LINES
}

/// How many copies a case has that is summed up, and how fast they are together.
pub(crate) fn remark(played: &Played<'_>) -> String {
    let (copies, seconds) = (&played.ours.copies, seconds(&played.ours));
    let bytes: u64 = copies.iter().map(|copy| copy.bytes).sum();
    let rate = topo::rate(bytes as f64 / seconds.max(1e-9));
    let (name, count) = (&played.case.name, copies.len());
    let case = if name.is_empty() { String::new() } else { format!("{name}: ") };
    format!("{case}{count} copies, {rate} together; the {SLOWEST} slowest above, --json has all\n")
}

/// What a case takes beyond what is computed in it, in seconds (section 6.5).
pub(crate) fn communication(case: &Case, report: &CaseReport) -> f64 {
    (report.ended.since(Time(0)).saturating_sub(case.computing())).as_secs_f64()
}

/// The head, and a row for each case.
pub(crate) fn table<'a>(
    baseline: Option<Baseline>,
    played: impl IntoIterator<Item = &'a Played<'a>>,
) -> Vec<Vec<String>> {
    let ours = ["case", "payload", "seconds", "computing", "communication", "staging"];
    let mut head: Vec<String> = ours.map(str::to_owned).into();
    if let Some(baseline) = baseline {
        let theirs = [baseline.name(), "communication", "held", "overall", "communication"];
        head.extend(theirs.map(str::to_owned));
    }
    [head].into_iter().chain(played.into_iter().map(row)).collect()
}

fn row(played: &Played<'_>) -> Vec<String> {
    let (case, ours) = (played.case, &played.ours);
    let mut row = vec![
        case.name.clone(),
        topo::size(ours.copies.iter().map(|copy| copy.bytes).sum()),
        format!("{:.6}", seconds(ours)),
        format!("{:.6}", case.computing().as_secs_f64()),
        format!("{:.6}", communication(case, ours)),
        topo::size(ours.held_bytes()),
    ];
    if let Some(theirs) = &played.theirs {
        row.push(format!("{:.6}", seconds(theirs)));
        row.push(format!("{:.6}", communication(case, theirs)));
        row.push(topo::size(theirs.held_bytes()));
        row.push(change(seconds(ours), seconds(theirs)));
        row.push(change(communication(case, ours), communication(case, theirs)));
    }
    row
}

fn seconds(report: &CaseReport) -> f64 {
    report.ended.since(Time(0)).as_secs_f64()
}

/// How much less ours is, of theirs.
fn change(ours: f64, theirs: f64) -> String {
    if theirs > 0.0 { format!("{:+.1} %", (ours / theirs - 1.0) * 100.0) } else { "–".to_owned() }
}
