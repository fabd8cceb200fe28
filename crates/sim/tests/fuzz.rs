//! Random scenarios by seed.

use isometry_sim::{End, fuzz, run, scenario};
use model::Span;

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

#[test]
fn every_kind_of_instance_is_drawn() {
    let scenarios: Vec<_> = (0..300).map(scenario).collect();
    let ends = |of: fn(&isometry_sim::TransferSpec) -> &End| {
        scenarios.iter().flat_map(|s| &s.transfers).map(of).collect::<Vec<_>>()
    };
    let strides = |end: &&End, odd: fn(&i64) -> bool| {
        end.stored.strides.as_ref().is_some_and(|strides| strides.iter().any(odd))
    };
    for (is_source, ends) in [(true, ends(|t| &t.src)), (false, ends(|t| &t.dst))] {
        let count = |kind: &dyn Fn(&&End) -> bool| ends.iter().filter(|end| kind(end)).count();
        let fields = |end: &&End| end.stored.fields.fields().len();
        assert!(count(&|end| strides(end, |s| *s < 0)) > 30);
        assert!(count(&|end| strides(end, |s| s % 2 != 0)) > 30);
        assert_eq!(count(&|end| strides(end, |s| *s == 0)) > 5, is_source);
        assert!(count(&|end| fields(end) > end.stored.chosen.len()) > 30);
        assert!(count(&|end| !end.stored.chosen.is_sorted()) > 30);
        assert!(count(&|end| !end.stored.fields.is_packed()) > 30);
        assert!(count(&|end| end.part.spans().iter().any(|s| matches!(s, Span::List(_)))) > 30);
    }
    assert!(scenarios.iter().filter(|s| s.ageing.is_some()).count() > 30);
}
