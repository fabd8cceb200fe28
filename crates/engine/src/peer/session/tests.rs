//! Two peers and the wire between them, in random order.

use super::*;
use proptest::prelude::*;

const LEASE: Duration = Duration::from_nanos(10_000);
const RESEND: Duration = Duration::from_nanos(100);

fn sessions(node: u32, life: u32) -> Sessions {
    let config = PeerConfig { node: NodeId(node), life, lease: LEASE, resend: RESEND };
    Sessions::new(config)
}

fn name(serial: u64) -> AskId {
    AskId { asker: NodeId(0), life: 1, serial }
}

fn note(serial: u64) -> Note {
    Note { ask: name(serial), message: PeerMessage::Arrived(serial) }
}

fn serials(heard: Heard) -> Vec<u64> {
    heard.notes.into_iter().map(|note| note.ask.serial).collect()
}

/// Passes packets between two until neither has any; what each hears, and how often it lost the
/// other.
fn settle(now: u64, ends: &mut [Sessions; 2]) -> [(Vec<u64>, usize); 2] {
    let mut heard: [(Vec<u64>, usize); 2] = Default::default();
    for _ in 0..50 {
        let packets: Vec<Packet> =
            ends.iter_mut().flat_map(|end| std::iter::from_fn(|| end.poll_packet())).collect();
        if packets.is_empty() {
            return heard;
        }
        for packet in packets {
            let to = packet.to.0 as usize;
            let news = ends[to].handle(Time(now), packet);
            heard[to].1 += usize::from(news.lost.is_some());
            heard[to].0.extend(serials(news));
        }
    }
    panic!("they greet each other for ever");
}

/// What the wire does with the next packet.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Lose,
    Pass,
    Twice,
    /// It comes after so many others.
    Late(usize),
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let fate = prop_oneof![
        1 => Just(Fate::Lose),
        3 => Just(Fate::Pass),
        1 => Just(Fate::Twice),
        1 => (1usize..6).prop_map(Fate::Late),
    ];
    prop::collection::vec(fate, 1..60)
}

proptest! {
    #[test]
    fn messages_come_once_and_in_order(
        fates in fates(),
        counts in prop::collection::vec(0u64..40, 1..30),
    ) {
        let mut ends = [sessions(0, 1), sessions(1, 1)];
        let (mut sent, mut heard, mut now) = (0u64, Vec::new(), 0);
        let mut wire: VecDeque<Packet> = VecDeque::new();
        let mut fates = fates.into_iter().cycle();
        ends[0].hold(Time(0), NodeId(1), Use::Ask(name(0)));
        // Trouble while there is something to say, then a good wire.
        for turn in 0..counts.len() + 40 {
            for _ in 0..counts.get(turn).copied().unwrap_or(0) {
                sent += 1;
                ends[0].send(Time(now), NodeId(1), note(sent));
            }
            now += 60;
            for end in &mut ends {
                prop_assert!(end.handle_timeout(Time(now)).is_empty(), "nobody is given up");
                wire.extend(std::iter::from_fn(|| end.poll_packet()));
            }
            for _ in 0..wire.len() {
                let Some(packet) = wire.pop_front() else { break };
                let is_good = turn >= counts.len();
                let copies = match fates.next() {
                    _ if is_good => 1,
                    Some(Fate::Lose) => 0,
                    Some(Fate::Twice) => 2,
                    Some(Fate::Late(by)) if wire.len() > by => {
                        wire.insert(by, packet);
                        continue;
                    }
                    _ => 1,
                };
                for _ in 0..copies {
                    let to = packet.to.0 as usize;
                    heard.extend(serials(ends[to].handle(Time(now), packet.clone())));
                }
            }
        }
        prop_assert_eq!(heard, (1..=sent).collect::<Vec<_>>());
    }
}

/// What happens to two peers that have trouble.
#[derive(Debug, Clone, Copy)]
enum Trouble {
    Send(usize),
    /// A packet on the wire arrives, is lost, or arrives and stays.
    Arrive(prop::sample::Index),
    Lose(prop::sample::Index),
    Repeat(prop::sample::Index),
    Wait(u64),
    Restart(usize),
}

fn troubles() -> impl Strategy<Value = Vec<Trouble>> {
    let index = any::<prop::sample::Index>;
    let trouble = prop_oneof![
        3 => (0usize..2).prop_map(Trouble::Send),
        6 => index().prop_map(Trouble::Arrive),
        2 => index().prop_map(Trouble::Lose),
        2 => index().prop_map(Trouble::Repeat),
        4 => (1u64..15_000).prop_map(Trouble::Wait),
        1 => (0usize..2).prop_map(Trouble::Restart),
    ];
    prop::collection::vec(trouble, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn peers_find_each_other_again(troubles in troubles()) {
        let mut ends = [sessions(0, 1), sessions(1, 1)];
        let (mut wire, mut lives, mut now, mut sent): (Vec<Packet>, _, _, _) =
            (Vec::new(), [1, 1], 0, 0);
        let mut heard: [Vec<u64>; 2] = Default::default();
        for trouble in troubles {
            match trouble {
                Trouble::Send(from) => {
                    sent += 1;
                    let to = NodeId(1 - from as u32);
                    ends[from].hold(Time(now), to, Use::Ask(name(sent)));
                    ends[from].send(Time(now), to, note(sent));
                }
                Trouble::Restart(at) => {
                    lives[at] += 1;
                    ends[at] = sessions(at as u32, lives[at]);
                }
                Trouble::Wait(by) => {
                    now += by;
                    ends.iter_mut().for_each(|end| drop(end.handle_timeout(Time(now))));
                }
                Trouble::Lose(at) if !wire.is_empty() => {
                    wire.swap_remove(at.index(wire.len()));
                }
                Trouble::Arrive(at) | Trouble::Repeat(at) if !wire.is_empty() => {
                    let at = at.index(wire.len());
                    let packet = wire[at].clone();
                    if matches!(trouble, Trouble::Arrive(_)) {
                        wire.swap_remove(at);
                    }
                    let to = packet.to.0 as usize;
                    heard[to].extend(serials(ends[to].handle(Time(now), packet)));
                }
                _ => {}
            }
            wire.extend(ends.iter_mut().flat_map(|e| std::iter::from_fn(|| e.poll_packet())));
        }
        for serials in &heard {
            prop_assert!(serials.windows(2).all(|pair| pair[0] < pair[1]), "once and in order");
        }
        // A good wire from here on: what is said in a session that is over is lost with it, yet they
        // learn of it, and agree.
        for packet in wire {
            let to = packet.to.0 as usize;
            ends[to].handle(Time(now), packet);
        }
        let mut last = [None, None];
        for _ in 0..3 {
            for (from, end) in ends.iter_mut().enumerate() {
                sent += 1;
                end.send(Time(now), NodeId(1 - from as u32), note(sent));
            }
            for _ in 0..5 {
                for (last, (serials, _)) in last.iter_mut().zip(settle(now, &mut ends)) {
                    *last = serials.last().copied().or(*last);
                }
                now += 150;
                ends.iter_mut().for_each(|end| drop(end.handle_timeout(Time(now))));
            }
        }
        settle(now, &mut ends);
        prop_assert_eq!(last, [Some(sent), Some(sent - 1)]);
        for _ in 0..40 {
            now += 1000;
            for end in &mut ends {
                prop_assert!(end.handle_timeout(Time(now)).is_empty(), "nobody is silent");
            }
            let news = settle(now, &mut ends);
            prop_assert_eq!(news.map(|(_, lost)| lost), [0, 0]);
        }
        let [a, b] = &ends;
        let (mine, theirs) = (a.numbers(NodeId(1)).unwrap(), b.numbers(NodeId(0)).unwrap());
        prop_assert_eq!(mine, (theirs.1, theirs.0));
    }
}

#[test]
fn a_silent_peer_is_given_up_once_and_learns_of_it() {
    let mut ends = [sessions(0, 1), sessions(1, 1)];
    ends[0].hold(Time(0), NodeId(1), Use::Ask(name(7)));
    ends[1].hold(Time(0), NodeId(0), Use::Share(name(7)));
    ends[0].send(Time(0), NodeId(1), note(1));
    assert_eq!(settle(1, &mut ends)[1], (vec![1], 0));
    // Nothing of the other comes for a lease, though that one speaks.
    let lost = (1..=200).flat_map(|i| ends[0].handle_timeout(Time(i * 100))).collect::<Vec<_>>();
    assert_eq!(lost, [(NodeId(1), BTreeSet::from([Use::Ask(name(7))]))]);
    while ends[0].poll_packet().is_some() {}
    // What the other says in the old session is not heard; it is told, and gives up as well.
    ends[1].send(Time(20_001), NodeId(0), note(2));
    assert_eq!(settle(20_001, &mut ends), [(vec![], 0), (vec![], 1)]);
    ends[1].send(Time(20_003), NodeId(0), note(3));
    assert_eq!(settle(20_003, &mut ends), [(vec![3], 0), (vec![], 0)]);
    assert_eq!(ends[0].numbers(NodeId(1)).unwrap().1, ends[1].numbers(NodeId(0)).unwrap().0);
}

/// It speaks, and hears nothing, or says so: what is kept for it would grow for ever.
#[test]
fn a_peer_that_acknowledges_nothing_is_given_up() {
    let mut ends = [sessions(0, 1), sessions(1, 1)];
    ends[0].send(Time(0), NodeId(1), note(0));
    assert_eq!(settle(0, &mut ends), [(vec![], 0), (vec![0], 0)]);
    let mut lost = 0;
    for turn in 1..=250 {
        let now = Time(turn * 100);
        ends[0].send(now, NodeId(1), note(turn));
        // The other says something, and knows of nothing later than the first.
        ends[1].send(now, NodeId(0), note(turn));
        while let Some(packet) = ends[1].poll_packet() {
            ends[0].handle(now, Packet { ack: packet.ack.min(1), ..packet });
        }
        lost += ends[0].handle_timeout(now).len();
        while ends[0].poll_packet().is_some() {}
        let session = &ends[0].all[&NodeId(1)];
        assert!(session.unacked.len() + session.waiting.len() <= 101, "at {now:?}");
    }
    assert_eq!(lost, 2, "once a lease");
}

/// One side counts on the other, which counts on nobody: it answers all the same.
#[test]
fn who_counts_on_nobody_still_answers() {
    let mut ends = [sessions(0, 1), sessions(1, 1)];
    ends[0].hold(Time(0), NodeId(1), Use::Share(name(1)));
    ends[1].send(Time(0), NodeId(0), note(1));
    for turn in 0..2000 {
        let now = turn * 50;
        for end in &mut ends {
            assert!(end.handle_timeout(Time(now)).is_empty(), "at {now}");
        }
        settle(now, &mut ends);
    }
}

#[test]
fn a_packet_of_an_earlier_life_is_nothing() {
    let mut ends = [sessions(0, 1), sessions(1, 1)];
    ends[0].send(Time(0), NodeId(1), note(1));
    settle(0, &mut ends);
    ends[0].send(Time(1), NodeId(1), note(2));
    let late = ends[0].poll_packet().unwrap();
    ends[1].hold(Time(1), NodeId(0), Use::Share(name(1)));
    ends[0] = sessions(0, 2);
    ends[0].send(Time(2), NodeId(1), note(9));
    assert_eq!(settle(2, &mut ends), [(vec![], 0), (vec![9], 1)]);
    assert!(serials(ends[1].handle(Time(3), late)).is_empty());
}

#[test]
fn nothing_is_due_with_a_peer_that_nobody_counts_on() {
    let mut ends = [sessions(0, 1), sessions(1, 1)];
    ends[0].send(Time(0), NodeId(1), note(1));
    settle(0, &mut ends);
    ends[0].send(Time(0), NodeId(1), note(2));
    settle(0, &mut ends);
    assert!(ends[0].poll_timeout().is_some(), "it is not acknowledged");
    ends[1].handle_timeout(Time(50));
    settle(50, &mut ends);
    assert_eq!(ends.each_ref().map(Sessions::poll_timeout), [None, None]);
    assert!(ends.iter_mut().all(|end| end.poll_packet().is_none()));
}

#[test]
fn no_more_than_a_window_is_out() {
    let mut a = sessions(0, 1);
    (1..=1000).for_each(|i| a.send(Time(0), NodeId(1), note(i)));
    assert_eq!(std::iter::from_fn(|| a.poll_packet()).count(), WINDOW);
}

#[test]
fn two_who_only_wait_say_little() {
    let mut ends = [sessions(0, 1), sessions(1, 1)];
    for (at, end) in ends.iter_mut().enumerate() {
        end.hold(Time(0), NodeId(1 - at as u32), Use::Ask(name(1)));
        end.send(Time(0), NodeId(1 - at as u32), note(1));
    }
    settle(0, &mut ends);
    let mut packets = 0;
    while let Some(now) = ends.iter().filter_map(Sessions::poll_timeout).min() {
        if now > Time(10 * 10_000) {
            break;
        }
        for at in 0..2 {
            assert!(ends[at].handle_timeout(now).is_empty(), "given up at {now:?}");
            while let Some(packet) = ends[at].poll_packet() {
                packets += 1;
                assert!(ends[1 - at].handle(now, packet).lost.is_none());
            }
        }
    }
    // In ten leases each asks four times a lease at most, and is answered.
    assert!(packets <= 10 * 4 * 4, "{packets}");
}
