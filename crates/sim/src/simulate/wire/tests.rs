use super::*;
use proptest::prelude::*;

fn wire(rate: f64, half_duplex: bool) -> model::Wire {
    model::Wire { name: "bus".to_owned(), rate, half_duplex }
}

/// A request: its wires, bytes, and what it takes alone where no wire holds it up.
type Asked = (&'static [usize], u64, u64);

/// The instants at which requests that all begin at 0 have crossed.
fn ends(of: &[model::Wire], requests: &[Asked]) -> Vec<u64> {
    let mut wires = Wires::default();
    let count = of.iter().map(|wire| wires.add(wire)).count();
    for (channel, &(across, bytes, service_ns)) in requests.iter().enumerate() {
        let across = [across.first().copied(), across.get(1).copied()];
        wires.join(Time(0), channel, across, (bytes, Duration::from_nanos(service_ns)));
    }
    let mut ends = vec![0; requests.len()];
    while let Some((at, wire)) = (0..count).filter_map(|w| Some((wires.next_at(w)?, w))).min() {
        wires.leave(at, wire).0.into_iter().for_each(|channel| ends[channel] = at.0);
    }
    ends
}

#[test]
fn a_channel_alone_has_its_own_rate_or_the_wires() {
    assert_eq!(ends(&[wire(1e9, false)], &[(&[0], 1000, 4000)]), [4000]);
    assert_eq!(ends(&[wire(1e9, false)], &[(&[0], 1000, 10)]), [1000]);
    assert_eq!(ends(&[wire(1e9, true)], &[(&[0], 1000, 4000)]), [4000]);
    assert_eq!(ends(&[wire(1e9, false), wire(5e8, false)], &[(&[0, 1], 1000, 10)]), [2000]);
}

#[test]
fn two_channels_get_half_each() {
    let both: [Asked; 2] = [(&[0], 1000, 1000), (&[0], 1000, 500)];
    assert_eq!(ends(&[wire(1e9, false)], &both), [2000, 2000]);
}

#[test]
fn a_slow_one_leaves_its_rest_to_the_others() {
    // A tenth for the first; the others halve what is left.
    let bus = [wire(1e9, false)];
    let all = ends(&bus, &[(&[0], 100, 1000), (&[0], 450, 1), (&[0], 450, 1)]);
    assert_eq!(all, [1000, 1000, 1000]);
    // Once the second has gone, the first is not held up: it never was.
    assert_eq!(ends(&bus, &[(&[0], 100, 1000), (&[0], 90, 1)]), [1000, 100]);
}

#[test]
fn who_stays_gets_what_those_who_leave_had() {
    // Half the wire until 1000, all of it for the 500 bytes that are left then.
    let both: [Asked; 2] = [(&[0], 500, 1), (&[0], 1000, 1)];
    assert_eq!(ends(&[wire(1e9, false)], &both), [1000, 1500]);
}

#[test]
fn a_half_duplex_wire_is_taken_for_as_long_as_it_lasts() {
    // Each takes it alone for as long as its channel does, whatever is carried meanwhile.
    let disk = [wire(1e9, true)];
    assert_eq!(ends(&disk, &[(&[0], 100, 1000), (&[0], 100, 1000)]), [2000, 2000]);
    assert_eq!(ends(&disk, &[(&[0], 100, 1000), (&[0], 1000, 10)]), [2000, 2000]);
}

#[test]
fn parts_of_nanoseconds_are_rounded_up() {
    let three: [Asked; 3] = [(&[0], 1, 0); 3];
    assert_eq!(ends(&[wire(3e9, false)], &three), [1, 1, 1]);
    assert_eq!(ends(&[wire(1e9, false)], &[(&[0], 0, 0)]), [0]);
    assert_eq!(ends(&[wire(1e9, false)], &[(&[0], 0, 7), (&[0], 100, 1)]), [7, 100]);
}

#[test]
fn many_that_send_to_one_share_its_port() {
    // Ports 0 to 2 send to port 3; the other direction, and port 4, are free.
    let ports: Vec<_> = (0..5).map(|_| wire(1e9, false)).collect();
    let asked: [Asked; 4] =
        [(&[0, 3], 900, 1), (&[1, 3], 900, 1), (&[2, 3], 900, 1), (&[2, 4], 900, 1)];
    // Port 2 sends a third of what it can to port 3, and the rest elsewhere.
    assert_eq!(ends(&ports, &asked), [2700, 2700, 2700, 1350]);
}

#[test]
fn who_is_held_up_elsewhere_leaves_the_rest_to_others() {
    // The first crosses a slow port; the second has nine tenths of the port that both leave by.
    let ports = [wire(1e9, false), wire(1e8, false), wire(1e9, false)];
    assert_eq!(ends(&ports, &[(&[0, 1], 100, 1), (&[0, 2], 900, 1)]), [1000, 1000]);
}

/// Whether all is shared fairly: no wire carries more than it can, and each flow goes as fast as
/// alone, or crosses a wire that is full, where nobody has more.
fn is_fair(wires: &Wires) -> Result<(), String> {
    let flows = || wires.flows.iter().flatten();
    let share = |flow: &Flow, wire: usize| {
        let part = flow.crosses().find(|(at, _)| *at == wire).map(|(_, part)| part);
        part.map(|part| part * flow.pace)
    };
    let used = |wire: usize| flows().filter_map(|flow| share(flow, wire)).sum::<f64>();
    let most = |wire: usize| flows().filter_map(|flow| share(flow, wire)).fold(0.0, f64::max);
    for wire in 0..wires.wires.len() {
        (used(wire) <= 1.0 + 1e-9)
            .then_some(())
            .ok_or(format!("wire {wire} carries {}", used(wire)))?;
    }
    for flow in flows() {
        let held_up = |(wire, part): (usize, f64)| {
            used(wire) >= 1.0 - 1e-9 && part * flow.pace >= most(wire) - 1e-9
        };
        let fair =
            (flow.pace - 1.0).abs() < 1e-9 || (flow.pace < 1.0 && flow.crosses().any(held_up));
        fair.then_some(()).ok_or(format!("{flow:?}"))?;
    }
    Ok(())
}

/// Whether all is shared fairly, and whoever plans anew for the wires that have `changed` alone
/// knows of every end.
fn is_sound(wires: &Wires, changed: Vec<usize>, plans: &mut [Option<Time>]) -> Result<(), String> {
    changed.into_iter().for_each(|wire| plans[wire] = wires.next_at(wire));
    for (wire, plan) in plans.iter().enumerate() {
        let next = wires.next_at(wire);
        (*plan == next).then_some(()).ok_or(format!("wire {wire}: {plan:?} for {next:?}"))?;
    }
    is_fair(wires)
}

proptest! {
    #[test]
    fn all_is_shared_fairly(
        rates in prop::collection::vec(prop::sample::select(vec![1e9, 2e9, 7e9]), 2..8),
        steps in prop::collection::vec((0usize..12, 0usize..8, 0usize..8, 1u64..5000, 1u64..5000), 1..60),
    ) {
        let mut wires = Wires::default();
        rates.iter().for_each(|&rate| { wires.add(&wire(rate, false)); });
        let mut plans = vec![None; rates.len()];
        let mut now = Time(0);
        for (channel, from, to, bytes, service_ns) in steps {
            while wires.flows.get(channel).copied().flatten().is_some() {
                let next = (0..rates.len()).filter_map(|w| Some((plans[w]?, w))).min();
                let (at, crossed) = next.expect("a flow ends");
                now = at;
                plans[crossed] = None;
                let changed = wires.leave(now, crossed).1;
                prop_assert_eq!(is_sound(&wires, changed, &mut plans), Ok(()));
            }
            let (from, to) = (from % rates.len(), to % rates.len());
            let across = [Some(from), Some(to).filter(|to| *to != from)];
            let changed =
                wires.join(now, channel, across, (bytes, Duration::from_nanos(service_ns)));
            prop_assert_eq!(is_sound(&wires, changed, &mut plans), Ok(()));
        }
    }
}
