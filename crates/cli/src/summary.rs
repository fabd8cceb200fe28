//! What the cases of a workload come to, a line for each.

use crate::topo;
use crate::workload::Played;
use model::Time;
use sim::{Baseline, Case, CaseReport};

/// What a case takes beyond what is computed in it, in seconds (section 6.5).
pub(crate) fn communication(case: &Case, report: &CaseReport) -> f64 {
    (report.ended.since(Time(0)).saturating_sub(case.computing())).as_secs_f64()
}

/// The head, and a row for each case.
pub(crate) fn table(baseline: Option<Baseline>, played: &[Played<'_>]) -> Vec<Vec<String>> {
    let ours = ["case", "payload", "seconds", "computing", "communication", "staging"];
    let mut head: Vec<String> = ours.map(str::to_owned).into();
    if let Some(baseline) = baseline {
        let theirs = [baseline.name(), "communication", "held", "overall", "communication"];
        head.extend(theirs.map(str::to_owned));
    }
    [head].into_iter().chain(played.iter().map(row)).collect()
}

fn row(played: &Played<'_>) -> Vec<String> {
    let (case, ours) = (played.case, &played.ours);
    let seconds = |report: &CaseReport| report.ended.since(Time(0)).as_secs_f64();
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

/// How much less ours is, of theirs.
fn change(ours: f64, theirs: f64) -> String {
    if theirs > 0.0 { format!("{:+.1} %", (ours / theirs - 1.0) * 100.0) } else { "–".to_owned() }
}
