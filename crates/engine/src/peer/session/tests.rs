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

/// All packets of one, into the other; what the other hears.
fn pass(now: u64, from: &mut Sessions, to: &mut Sessions) -> (Vec<u64>, usize) {
    let (mut heard, mut lost) = (Vec::new(), 0);
    while let Some(packet) = from.poll_packet() {
        let news = to.handle(Time(now), packet);
        lost += usize::from(news.lost.is_some());
        heard.extend(serials(news));
    }
    (heard, lost)
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

#[test]
fn a_silent_peer_is_given_up_once_and_learns_of_it() {
    let mut ends = [sessions(0, 1), sessions(1, 1)];
    let [a, b] = &mut ends;
    a.hold(Time(0), NodeId(1), Use::Ask(name(7)));
    b.hold(Time(0), NodeId(0), Use::Share(name(7)));
    a.send(Time(0), NodeId(1), note(1));
    assert_eq!(pass(1, a, b), (vec![1], 0));
    pass(1, b, a);
    // Nothing of the other comes for a lease, though that one speaks.
    let lost = (1..=200).flat_map(|i| a.handle_timeout(Time(i * 100))).collect::<Vec<_>>();
    assert_eq!(lost, [(NodeId(1), BTreeSet::from([Use::Ask(name(7))]))]);
    while a.poll_packet().is_some() {}
    // What the other says in the old session is not heard; it is told, and gives up as well.
    b.send(Time(20_001), NodeId(0), note(2));
    assert_eq!(pass(20_001, b, a), (vec![], 0));
    assert_eq!(pass(20_002, a, b), (vec![], 1));
    b.send(Time(20_003), NodeId(0), note(3));
    assert_eq!(pass(20_003, b, a), (vec![3], 0));
    assert_eq!(a.numbers(NodeId(1)).unwrap().1, b.numbers(NodeId(0)).unwrap().0);
}

#[test]
fn a_packet_of_an_earlier_life_is_nothing() {
    let (mut old, mut b) = (sessions(0, 1), sessions(1, 1));
    old.send(Time(0), NodeId(1), note(1));
    old.send(Time(0), NodeId(1), note(2));
    let late: Vec<Packet> = std::iter::from_fn(|| old.poll_packet()).collect();
    assert_eq!(serials(b.handle(Time(1), late[0].clone())), [1]);
    b.hold(Time(1), NodeId(0), Use::Share(name(1)));
    let mut new = sessions(0, 2);
    new.send(Time(2), NodeId(1), note(9));
    assert_eq!(pass(2, &mut new, &mut b), (vec![9], 1));
    assert_eq!(serials(b.handle(Time(3), late[1].clone())), Vec::<u64>::new());
    assert_eq!(serials(b.handle(Time(3), late[0].clone())), Vec::<u64>::new());
}

#[test]
fn nothing_is_due_with_a_peer_that_nobody_counts_on() {
    let mut ends = [sessions(0, 1), sessions(1, 1)];
    let [a, b] = &mut ends;
    a.send(Time(0), NodeId(1), note(1));
    pass(0, a, b);
    assert!(a.poll_timeout().is_some(), "it is not acknowledged");
    b.handle_timeout(Time(50));
    pass(50, b, a);
    assert_eq!((a.poll_timeout(), b.poll_timeout()), (None, None));
    assert!(a.poll_packet().is_none() && b.poll_packet().is_none());
}

#[test]
fn no_more_than_a_window_is_out() {
    let mut a = sessions(0, 1);
    (1..=1000).for_each(|i| a.send(Time(0), NodeId(1), note(i)));
    assert_eq!(std::iter::from_fn(|| a.poll_packet()).count(), WINDOW);
}
