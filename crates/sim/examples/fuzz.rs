//! Plays scenarios by seed: `fuzz FIRST_SEED SEEDS`. Ends with 1 where a rule was broken.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).filter_map(|arg| arg.parse::<u64>().ok());
    let (Some(first), Some(count)) = (numbers.next(), numbers.next()) else {
        eprintln!("usage: fuzz FIRST_SEED SEEDS");
        return ExitCode::from(2);
    };
    let report = isometry_sim::fuzz(first..first.saturating_add(count));
    println!("{report}");
    if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
