//! Records of a few fields of one size, in the caches.
//!
//! **Hazard.** A window for each vector of the result reads everything as often as there are fields, most of it across
//! the lines of the source. **Structure.** As many records as a vector has elements are as many vectors as there are
//! fields, on either side: each is read once, and each of the result is picked from all of them.

use super::{Block, MOST_BY_TABLE, Records, Rows};
use crate::tile::is_line;
use crate::vector::{Abilities, LANE_BYTES, LINE_BYTES, Vector};

/// From so many vectors one is picked by twos, the last of which may be one.
const MOST_PICKS: usize = MOST_BY_TABLE.div_ceil(2);

/// For each vector of the result and each two of the source: the numbers of its bytes in these; 128 or more where it
/// has them from others.
pub(super) struct Picks([[[u8; LINE_BYTES]; MOST_PICKS]; MOST_BY_TABLE]);

impl Picks {
    /// For records that are moved so.
    pub(super) fn of(records: &Records<'_>) -> Picks {
        let mut tables = [[[u8::MAX; LINE_BYTES]; MOST_PICKS]; MOST_BY_TABLE];
        let (fields, bytes) = (records.fields.len(), records.fields.at(0).bytes);
        let mut packed = 0;
        for record in 0..LINE_BYTES / bytes {
            for field in 0..fields {
                for byte in record * bytes..(record + 1) * bytes {
                    let (record, array) =
                        ((packed / LINE_BYTES, packed % LINE_BYTES), (field, byte));
                    let (from, to) = if records.splits { (record, array) } else { (array, record) };
                    tables[to.0][from.0 / 2][to.1] = (from.0 % 2 * LINE_BYTES + from.1) as u8;
                    packed += 1;
                }
            }
        }
        Picks(tables)
    }
}

impl Records<'_> {
    /// Whether these, dense and of `bytes` a field, are moved so: by vectors that are lines, which pick such.
    pub(super) fn are_picked(bytes: usize, by: Abilities) -> bool {
        is_line(by.lanes) && bytes.is_multiple_of(by.unit_bytes)
    }

    /// Whether units of less than four bytes are picked.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn picks_bytes(&self) -> bool {
        self.fill == super::Fill::Picks && self.fields.at(0).bytes < 4
    }

    /// How many records are before the first from which on all rows of the result have whole lines, if there are few such.
    pub(super) fn before_lines(&self, rows: &Rows) -> usize {
        let to = &rows.to[..rows.lens.1];
        let on_line =
            |n: &usize| to.iter().all(|r| (r.at.addr() + n * r.step).is_multiple_of(LINE_BYTES));
        (0..LINE_BYTES).find(on_line).unwrap_or(0)
    }
}

/// Moves as many records of a block as whole vectors have, which is what it returns.
///
/// # Safety
/// As [`super::block::run`], for records that [`Records::are_picked`] says are; with their picks, for such vectors.
#[inline(always)]
pub(super) unsafe fn run<V: Vector>(
    records: &Records<'_>,
    (_, count): Block,
    (rows, picks): (&Rows, &Picks),
) -> usize {
    // SAFETY: the caller's contract.
    unsafe {
        match records.fields.len() {
            3 => by::<V, 3>(records, count, (rows, picks)),
            5 => by::<V, 5>(records, count, (rows, picks)),
            6 => by::<V, 6>(records, count, (rows, picks)),
            _ => by::<V, MOST_BY_TABLE>(records, count, (rows, picks)),
        }
    }
}

/// As [`run`], of `N` fields.
///
/// # Safety
/// As [`run`].
#[inline(always)]
unsafe fn by<V: Vector, const N: usize>(
    records: &Records<'_>,
    count: usize,
    (rows, picks): (&Rows, &Picks),
) -> usize {
    let vector = const { V::LANES * LANE_BYTES };
    let each = vector / records.fields.at(0).bytes;
    // Where the vectors of a side are, and how far it is to the next of each.
    let from: [_; N] = std::array::from_fn(|k| match records.splits {
        true => rows.from[0].at.wrapping_add(k * vector),
        false => rows.from[k].at,
    });
    let to: [_; N] = std::array::from_fn(|k| match records.splits {
        true => rows.to[k].at,
        false => rows.to[0].at.wrapping_add(k * vector),
    });
    let steps = if records.splits { (N * vector, vector) } else { (vector, N * vector) };
    // SAFETY: the caller's contract; a table is as long as a line.
    unsafe {
        let tables: [[V; MOST_PICKS]; N] =
            std::array::from_fn(|k| std::array::from_fn(|two| V::load(picks.0[k][two].as_ptr())));
        for n in 0..count / each {
            let all: [V; N] = std::array::from_fn(|k| V::load(from[k].wrapping_add(n * steps.0)));
            for (tables, to) in tables.iter().zip(to) {
                let mut made = V::pick((all[0], all[1]), tables[0]);
                for (two, &table) in tables.iter().enumerate().take(N.div_ceil(2)).skip(1) {
                    let (first, second) = (all[2 * two], all[(2 * two + 1).min(N - 1)]);
                    made = V::pick((first, second), table).or_else(made, table);
                }
                made.store(to.wrapping_add(n * steps.1));
            }
        }
    }
    count / each * each
}
