use super::*;
use model::{FieldCopy, NdCopy, NodeId, Place, RegionId, Throughput, TransferId};
use std::sync::Arc;

const HERE: ChannelId = ChannelId { node: NodeId(0), index: 0 };

fn spec(jitter_ns: u64) -> ChannelSpec {
    ChannelSpec {
        id: HERE,
        curves: Curves::all(Throughput::constant(1e9).unwrap()),
        latency_ns: 100,
        jitter_ns,
        max_in_flight: 4,
        rule: Rule::Priority,
    }
}

fn request(id: u64, bytes: u64) -> Request {
    let place = Place { region: RegionId { index: 0, generation: 0 }, offset: 0 };
    let field = FieldCopy { bytes, src_offset: 0, dst_offset: 0, padding: 0, strides: Vec::new() };
    let list = Arc::from([NdCopy { dims: Vec::new(), fields: vec![field] }]);
    let work = CopyWork { list, src: place, dst: place, payload_bytes: bytes, result_bytes: bytes };
    let transfer = TransferId { index: 0, generation: 0 };
    Request { id: RequestId(id), transfer, hop: 0, channel: HERE, work: Work::Copy(work) }
}

#[test]
fn a_steady_channel_serves_one_after_another_behind_its_latency() {
    let mut channel = VirtualChannel::new(spec(0), Rng::new(1));
    let ends: Vec<u64> =
        (0..4).map(|i| channel.submit(Time(50), 0, request(i, 1000)).complete.0).collect();
    assert_eq!(ends, [1150, 2150, 3150, 4150]);
    assert!(!channel.has_room());
    channel.complete(RequestId(2)).unwrap();
    assert!(channel.has_room() && channel.follows(RequestId(4)) && !channel.follows(RequestId(3)));
    channel.stall(Time(9000));
    assert_eq!(channel.submit(Time(50), 0, request(4, 1000)).complete, Time(10_000));
}

#[test]
fn bytes_move_between_submission_and_completion_and_ends_are_reordered() {
    let (mut reordered, mut kinds) = (0, [0; 3]);
    for seed in 0..200 {
        let mut channel = VirtualChannel::new(spec(5000), Rng::new(seed));
        let moments: Vec<Moments> =
            (0..4).map(|i| channel.submit(Time(7), 0, request(i, 1000))).collect();
        for m in &moments {
            assert!(Time(7) <= m.read && m.read <= m.write && m.write <= m.complete);
            assert!(Time(7) <= m.scribble && m.scribble <= m.write);
            kinds[0] += usize::from(m.read == Time(7));
            kinds[1] += usize::from(m.read == m.complete);
            kinds[2] += usize::from(m.write == m.complete);
        }
        reordered += usize::from(moments.windows(2).any(|p| p[0].complete > p[1].complete));
    }
    assert!(reordered > 100 && kinds.iter().all(|k| *k > 80), "{reordered} {kinds:?}");
}

#[test]
fn a_broken_request_fails_and_a_lost_device_stays_lost() {
    let mut channel = VirtualChannel::new(spec(0), Rng::new(1));
    channel.break_next(ChannelErrorKind::Io);
    channel.submit(Time(0), 0, request(0, 1));
    channel.submit(Time(0), 0, request(1, 1));
    assert_eq!(
        channel.complete(RequestId(0)).unwrap().result().unwrap_err().kind,
        ChannelErrorKind::Io
    );
    channel.submit(Time(0), 0, request(2, 1));
    channel.break_next(ChannelErrorKind::NoSpace);
    let end = |channel: &mut VirtualChannel, id| channel.complete(RequestId(id)).unwrap().result();
    assert_eq!(end(&mut channel, 1).unwrap_err().kind, ChannelErrorKind::NoSpace);
    channel.lose();
    assert_eq!(end(&mut channel, 2).unwrap_err().kind, ChannelErrorKind::DeviceLost);
    channel.submit(Time(0), 0, request(3, 1));
    assert_eq!(end(&mut channel, 3).unwrap_err().kind, ChannelErrorKind::DeviceLost);
}
