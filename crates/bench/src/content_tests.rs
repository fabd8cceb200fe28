//! The content against the addresses that the layout crate says.

use super::*;
use layout::Placement;

const STRUCTURE: &str = "[('a', '<f4'), ('b', '<f4'), ('c', '<f4')]";

fn array(dims: &[(&str, u64)], dtype: &str, layout: &str) -> Array {
    Array::of(dims, dtype).unwrap().laid_out(layout).unwrap()
}

fn bytes(array: &Array) -> Vec<u8> {
    Content::of(array).unwrap().to_vec(&Stop::default()).unwrap()
}

/// The same by addresses: entry by entry, in the order of the dimensions.
fn by_addresses(array: &Array) -> Vec<u8> {
    let place = Placement::of_layout(&array.layout, &array.space, &array.fields).unwrap();
    let mut bytes = vec![0; usize::try_from(array.bytes().unwrap()).unwrap()];
    let extents: Vec<i64> = array.space.dims().iter().map(|d| d.hi).collect();
    let mut index = vec![0; extents.len()];
    for number in 0..extents.iter().product::<i64>() {
        let mut rest = number;
        for (at, extent) in index.iter_mut().zip(&extents).rev() {
            (*at, rest) = (rest % extent, rest / extent);
        }
        for (f, field) in array.fields.fields().iter().enumerate() {
            let at = usize::try_from(place.address(&index, f)).unwrap();
            let of_field = number as u64 * array.fields.fields().len() as u64 + f as u64;
            for (byte, i) in bytes[at..].iter_mut().zip(0..field.bytes) {
                *byte = value(of_field, i / 8)[(i % 8) as usize];
            }
        }
    }
    bytes
}

#[test]
fn content_lies_where_addresses_say() {
    for (dims, dtype, layout) in [
        (&[("y", 5), ("x", 7)][..], "<f4", "yx"),
        (&[("y", 5), ("x", 7)], "|u1", "xy"),
        (&[("n", 3), ("h", 4), ("w", 5), ("c", 2)], "<u2", "nchw"),
        (&[("i", 11)], STRUCTURE, "<F, i>"),
        (&[("i", 11)], STRUCTURE, "<i, F>"),
        (&[("y", 6), ("x", 5)], STRUCTURE, "<y, F, x>"),
        (&[("y", 300), ("x", 400)], "|V3", "xy"),
        (&[("y", 3), ("x", 4)], "|V20", "xy"),
    ] {
        let array = array(dims, dtype, layout);
        assert!(bytes(&array) == by_addresses(&array), "{dims:?} {dtype} {layout}");
    }
}

#[test]
fn one_byte_too_few_too_many_or_wrong_is_found() {
    let array = array(&[("y", 300), ("x", 400)], "<f4", "xy");
    let check =
        |bytes: &[u8]| Content::of(&array).unwrap().is_in(&mut &*bytes, &Stop::default()).unwrap();
    let right = bytes(&array);
    assert!(check(&right));
    assert!(!check(&right[1..]) && !check(&right[..right.len() - 1]));
    assert!(!check(&[&right[..], &[0]].concat()));
    for at in [0, right.len() / 2, right.len() - 1] {
        let mut wrong = right.clone();
        wrong[at] ^= 1;
        assert!(!check(&wrong), "byte {at}");
    }
}

#[test]
fn a_box_has_the_numbers_of_its_whole() {
    let wide = array(&[("y", 4), ("x", 6)], "|u1", "yx");
    let mut numbers = Numbers::of(&wide).unwrap();
    numbers.dims[1].truncate(2);
    let part = numbers.laid_out(&wide.layout).unwrap().to_vec(&Stop::default()).unwrap();
    let expected: Vec<u8> = bytes(&wide).chunks(6).flat_map(|row| row[..2].to_vec()).collect();
    assert_eq!(part, expected);
}

#[test]
fn what_has_padding_is_refused() {
    let refused = |a: &Array| Content::of(a).is_err();
    assert!(refused(&array(&[("x", 5)], "<f4", "<x_in=4, F, x_out>")));
    assert!(refused(&array(&[("x", 5)], "[('a', '<f4'), ('b', '<f8')]", "x")));
}

#[test]
fn a_stop_ends_a_long_check() {
    let stop = Stop::on(std::sync::Arc::new(true.into()));
    let array = array(&[("x", 5)], "<f4", "x");
    let ended = Content::of(&array).unwrap().to_vec(&stop);
    assert!(matches!(ended, Err(Error::Interrupted)));
}
