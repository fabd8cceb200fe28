//! Random scenarios by seed.

use isometry_sim::{fuzz, run, scenario};

#[test]
fn two_thousand_seeds_keep_every_rule() {
    let report = fuzz(0..2000);
    assert!(report.is_clean(), "{report}");
    let total = report.total;
    assert!(total.done > 4000 && total.requests > 100_000, "{report}");
    assert!(total.cancelled > 100 && total.timed_out > 50 && total.failed > 100, "{report}");
}

#[test]
fn a_seed_fixes_everything() {
    for seed in 0..50 {
        assert!(scenario(seed) == scenario(seed), "seed {seed}");
        assert!(run(&scenario(seed)) == run(&scenario(seed)), "seed {seed}");
    }
    assert_eq!(fuzz(3..9).to_string(), fuzz(3..9).to_string());
    assert_ne!(fuzz(3..9).total.digest, fuzz(4..10).total.digest);
}

#[test]
fn without_payload_the_same_happens_event_for_event() {
    for seed in 0..200 {
        let mut scenario = scenario(seed);
        let with = run(&scenario);
        scenario.payload = false;
        assert!(run(&scenario) == with, "seed {seed}");
    }
}
