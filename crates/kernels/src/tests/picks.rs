//! Structures of a few fields of one size, in the caches.

use super::*;

#[test]
fn few_fields_of_one_size_are_picked_in_the_caches() {
    let wide = of_lines();
    for (fields, bytes) in [3, 5, 6, 7].into_iter().flat_map(|n| [1, 2, 4, 8].map(|e| (n, e))) {
        for back in [false, true] {
            let told = |count: u64, instance: &Instance| {
                let copy = structures(&vec![bytes; fields], count, back);
                explain_by(instance, &copy, std::ptr::null(), Stores::Cached)
            };
            assert!(
                told(259, &wide).contains("each vector picked from all"),
                "{}",
                told(259, &wide)
            );
            assert!(!told(255, &wide).contains("picked"), "fewer are no records");
            let mut dwords = wide;
            dwords.abilities.unit_bytes = 4;
            let told = told(259, &dwords);
            assert_eq!(told.contains("picked from all"), bytes >= 4, "{told}");
            // From a line on, from inside of one, and where no record of the result is as far into a line as it starts.
            for (count, to) in [(259, 0), (320, 16), (323, 4), (300, 1)] {
                if cfg!(miri) && (count, to) != (323, 4) {
                    continue;
                }
                check(&structures(&vec![bytes; fields], count, back), (1, to));
            }
        }
    }
}

#[test]
fn few_fields_of_one_size_go_by_squares_where_two_lanes_are_no_line() {
    let Some(avx2) = available().find(|instance| instance.name == "AVX2") else { return };
    for (fields, bytes) in [3, 5, 6, 7].into_iter().flat_map(|n| [1, 2, 4, 8].map(|e| (n, e))) {
        for (back, stores) in [false, true].into_iter().flat_map(|b| STORES.map(|s| (b, s))) {
            let copy = structures(&vec![bytes; fields], 5000, back);
            let told = explain_by(&avx2, &copy, std::ptr::null(), stores);
            let in_a_stage = back && stores == Stores::Streamed;
            let squares = bytes >= 4 && fields >= if in_a_stage { 6 } else { 5 };
            assert_eq!(told.contains("by squares"), squares, "{told}");
            assert_eq!(told.contains("by tables"), !squares, "{told}");
            check(&structures(&vec![bytes; fields], 261, back), (1, 4));
        }
    }
}
