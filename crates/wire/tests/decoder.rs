//! What is refused and why, and which programs are shared.

mod support;

use engine::{CompileError, Program};
use isometry_wire::{
    Decoder, MAX_PACKET_BYTES, MAX_PROGRAM_BYTES, VERSION, WireError, WireErrorKind, check, encode,
};
use layout::{Part, Placement};
use model::{Component, FieldSpace, IndexSpace, Layout, NodeId, Plan, Selection};
use std::sync::Arc;
use support::play::asking;
use support::{Case, EndSpec, Lie, program_of, reserve};

const ASKER: NodeId = NodeId(0);

/// A row of so many bytes, from one node to the other.
fn row(bytes: u64) -> Case {
    let end = EndSpec { lie: Lie::Strides(1), before: 0, listed: None };
    Case { extents: vec![bytes], field_bytes: vec![1], ends: [end.clone(), end], crosses: true }
}

fn refusal(from: NodeId, bytes: &[u8]) -> WireError {
    let error = Decoder::new().decode(from, bytes).unwrap_err();
    assert!(!error.is_retryable());
    error
}

/// What a decoder says to a request for this program.
fn asked((plan, src, dst): (&Plan, &Part, &Part)) -> Result<(), WireError> {
    let own = postcard::to_stdvec(&(plan, src, dst)).unwrap();
    let taken = Decoder::new().decode(ASKER, &asking(&own)).map(|_| ());
    // Who asks can know beforehand.
    if let Ok(program) = Program::compile(plan, src.clone(), dst.clone()) {
        assert_eq!(check(&program), taken);
    }
    taken
}

#[test]
fn what_is_no_packet_is_refused_with_a_reason() {
    let bytes = encode(&reserve(&row(64).program()));
    let malformed = |why| WireError::Malformed { why };
    assert_eq!(refusal(ASKER, &[]), malformed("no byte"));
    let old = [&[VERSION + 1], &bytes[1..]].concat();
    assert_eq!(refusal(ASKER, &old), WireError::Version { got: VERSION + 1 });
    assert_eq!(refusal(ASKER, &old).kind(), WireErrorKind::Version);
    assert_eq!(refusal(ASKER, &[&bytes[..], &[0]].concat()), malformed("it goes on"));
    for end in 1..bytes.len() {
        assert_eq!(refusal(ASKER, &bytes[..end]).kind(), WireErrorKind::Malformed, "{end} bytes");
    }
    let long = vec![VERSION; MAX_PACKET_BYTES + 1];
    let (bytes, most) = (MAX_PACKET_BYTES + 1, MAX_PACKET_BYTES);
    assert_eq!(refusal(ASKER, &long), WireError::TooLong { bytes, most });
    assert_eq!(refusal(ASKER, &long).kind(), WireErrorKind::Malformed);
    let long = asking(&vec![0; MAX_PROGRAM_BYTES + 1]);
    let (bytes, most) = (MAX_PROGRAM_BYTES + 1, MAX_PROGRAM_BYTES);
    assert_eq!(refusal(ASKER, &long), WireError::TooLong { bytes, most });
}

#[test]
fn nobody_speaks_for_another() {
    let bytes = encode(&reserve(&row(64).program()));
    let error = refusal(NodeId(2), &bytes);
    assert_eq!(error, WireError::Sender { from: NodeId(2), named: ASKER });
    assert_eq!(error.kind(), WireErrorKind::Sender);
    assert_eq!(error.to_string(), "a packet of node2 that says it is node0's");
}

#[test]
fn a_length_that_lies_costs_nothing() {
    // The program's length, and then nothing.
    let head = &asking(&[])[..asking(&[]).len() - 12];
    let huge = [head, &[0xFF, 0xFF, 0xFF, 0xFF, 0x0F]].concat();
    assert_eq!(refusal(ASKER, &huge).kind(), WireErrorKind::Malformed);
}

#[test]
fn a_plan_that_does_not_compile_is_refused() {
    let program = row(64).program();
    let (src, dst) = (program.src(), program.dst());
    assert_eq!(asked((program.plan(), src, dst)), Ok(()));
    let short = Plan { buffers: Vec::new(), ..Plan::clone(program.plan()) };
    let error = asked((&short, src, dst)).unwrap_err();
    assert!(matches!(error, WireError::Program(CompileError::Plan { .. })), "{error}");
    assert_eq!(error.kind(), WireErrorKind::Program);
}

/// A part of `fields` fields of one byte, in a layout of `<F, x>` or `<x_in, …, F, x_out>` with
/// these blocks.
fn part(extent: u64, fields: usize, blocks: &[u64]) -> (Layout, Part) {
    let inner = |(level, &size)| Component::Inner { dim: 0, level, size };
    let mut components: Vec<_> = (1..).zip(blocks).map(inner).collect();
    components.push(Component::Fields);
    components.push(if blocks.is_empty() { Component::Whole(0) } else { Component::Outer(0) });
    let layout = Layout::new(components, 1).unwrap();
    let space = IndexSpace::of(&[("x", extent)]).unwrap();
    let fields = FieldSpace::packed(&vec![1; fields]).unwrap();
    let placement = Placement::of_layout(&layout, &space, &fields).unwrap();
    let all: Vec<usize> = (0..fields.fields().len()).collect();
    (layout, placement.select(&Selection::all(&space), &all).unwrap())
}

#[test]
fn a_copy_of_too_many_fields_is_refused() {
    let program = row(64).program();
    let of = |fields| {
        let (_, part) = part(64, fields, &[]);
        asked((program.plan(), &part, &part))
    };
    assert_eq!(of(4096), Ok(()));
    assert_eq!(of(4097), Err(WireError::TooManyFields { fields: 4097, most: 4096 }));
}

/// Blocks of 1,000 and of 1,001 bytes meet in another way every time.
#[test]
fn a_copy_of_too_many_pieces_is_refused() {
    let program = row(64).program();
    let of = |blocks: u64, request_bytes| {
        let (from, src) = part(1 << 30, 1, &[1000]);
        let (to, dst) = part(1 << 30, 1, &[blocks]);
        let mut plan = Plan::clone(program.plan());
        plan.memories.drain(1..plan.memories.len() - 1);
        plan.hops.truncate(1);
        plan.hops[0].request_bytes = request_bytes;
        (plan.layouts, plan.buffers) = (vec![from, to], Vec::new());
        asked((&plan, &src, &dst))
    };
    assert_eq!(of(1000, 1 << 30), Ok(()));
    assert_eq!(of(1001, 1 << 16), Ok(()));
    let error = of(1001, 1 << 30).unwrap_err();
    assert!(matches!(error, WireError::Program(CompileError::Pieces { hop: 0, .. })), "{error}");
}

#[test]
fn a_layout_of_too_many_components_is_refused() {
    let program = row(64).program();
    let of = |levels| {
        let (_, part) = part(64, 1, &vec![1; levels]);
        asked((program.plan(), &part, &part))
    };
    assert_eq!(of(62), Ok(()));
    assert_eq!(of(63).unwrap_err().kind(), WireErrorKind::Malformed);
}

#[test]
fn copies_that_come_again_share_a_program_for_a_while() {
    let mut decoder = Decoder::new();
    let mut came = |bytes: u64| -> Arc<Program> {
        let packet = reserve(&row(bytes).program());
        program_of(&decoder.decode(ASKER, &encode(&packet)).unwrap())
    };
    let (first, kept) = (came(1), came(2));
    assert!(Arc::ptr_eq(&first, &came(1)));
    for bytes in 3..600 {
        came(bytes);
        assert!(Arc::ptr_eq(&kept, &came(2)), "what is asked for stays");
    }
    assert!(!Arc::ptr_eq(&first, &came(1)), "what is not goes");
    assert_eq!(Arc::strong_count(&first), 1, "and nothing keeps it");
}

/// However small they are.
#[test]
fn no_more_than_256_programs_are_kept() {
    let mut decoder = Decoder::new();
    let mut came = |bytes: u64| {
        let packet = reserve(&Case { crosses: false, ..row(bytes) }.program());
        program_of(&decoder.decode(ASKER, &encode(&packet)).unwrap())
    };
    let all: Vec<Arc<Program>> = (1..400).map(&mut came).collect();
    let kept = all.iter().filter(|program| Arc::strong_count(program) > 1).count();
    assert_eq!(kept, 256);
}
