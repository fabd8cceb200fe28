//! One case: a box of entries, two layouts of it, and the canonical copies between them.

use super::cells::Cells;
use crate::Error;
use crate::problems::Dims;
use layout::{NdCopy, Placement, Side, Stream, copies};
use model::{Component, FieldSpace, IndexSpace, Layout, Selection, Span};

/// The side that an index list is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listed {
    /// The source: position `i` of the destination comes from position `list[i]`.
    Take,
    /// The destination: position `i` of the source goes to position `list[i]`.
    Put,
}

/// A copy of all entries of a space, with all its fields, that changes their layout.
#[derive(Debug, Clone)]
pub(super) struct Problem {
    /// What the case is called.
    pub(super) name: String,
    pub(super) space: IndexSpace,
    pub(super) fields: FieldSpace,
    pub(super) from: Layout,
    pub(super) to: Layout,
    /// A dimension whose positions one side has in a random order.
    pub(super) list: Option<(Listed, usize)>,
    /// How far behind the start of a line the destination begins.
    pub(super) behind_line: u64,
    /// Whether the kernels are timed with either kind of stores, and no peers.
    pub(super) both_stores: bool,
    /// How often each contender runs.
    pub(super) runs: usize,
}

impl Problem {
    /// The same of other extents; `None` where `dims` has other names.
    pub(super) fn resized(mut self, dims: &Dims) -> Option<Self> {
        let pairs = dims.pairs();
        let own = self.space.dims().iter().map(|d| &*d.name);
        let alike = own.eq(pairs.iter().map(|(name, _)| *name));
        self.space = IndexSpace::of(&pairs).ok().filter(|_| alike)?;
        Some(self)
    }

    /// The payload, once.
    pub(super) fn payload_bytes(&self) -> u64 {
        self.space.entries() * self.field_bytes().iter().sum::<u64>()
    }

    /// The sizes of the fields.
    pub(super) fn field_bytes(&self) -> Vec<u64> {
        self.fields.fields().iter().map(|f| f.bytes).collect()
    }

    /// The bytes that source and destination take, padding included.
    pub(super) fn side_bytes(&self) -> Result<[u64; 2], Error> {
        let bytes = |layout| Ok::<_, Error>(self.placement(layout)?.span().end.unsigned_abs());
        Ok([bytes(&self.from)?, bytes(&self.to)?])
    }

    /// Whether source and destination have structures with padding.
    pub(super) fn has_padding(&self) -> [bool; 2] {
        let has = |layout: &Layout| layout.components()[0] == Component::Fields;
        [&self.from, &self.to].map(|layout| has(layout) && !self.fields.is_packed())
    }

    fn placement(&self, layout: &Layout) -> Result<Placement, Error> {
        Placement::of_layout(layout, &self.space, &self.fields)
            .map_err(Error::part("placing an array"))
    }

    /// What `layout` makes of the two sides: the form that the kernels take.
    pub(super) fn copies(&self) -> Result<Vec<NdCopy>, Error> {
        let order: Vec<usize> = (0..self.fields.fields().len()).collect();
        let part = |layout: &Layout, side: Listed| {
            let selection = self.selection(side)?;
            let placement = self.placement(layout)?;
            placement.select(&selection, &order).map_err(Error::part("selecting a box"))
        };
        let (src, dst) = (part(&self.from, Listed::Take)?, part(&self.to, Listed::Put)?);
        let phase = vec![0; self.space.rank()];
        let extents = self.space.extents();
        let stream = Stream::new(dst.layout(), &extents, &phase, &self.field_bytes())
            .map_err(Error::part("ordering a copy"))?;
        let all = 0..stream.bytes();
        Ok(copies(Side::Instance(&src), Side::Instance(&dst), &stream, all))
    }

    /// All of the space; along the listed dimension in the order of the list.
    fn selection(&self, side: Listed) -> Result<Selection, Error> {
        let mut spans = Selection::all(&self.space).spans().to_vec();
        if let Some((_, dim)) = self.list.filter(|(listed, _)| *listed == side) {
            let list = shuffled(self.space.dims()[dim].extent());
            spans[dim] = Span::List(list.into_iter().map(u64::cast_signed).collect());
        }
        Selection::new(&self.space, spans).map_err(Error::part("selecting a box"))
    }

    /// What the source holds.
    pub(super) fn source(&self) -> Result<Cells, Error> {
        Cells::new(&self.space, &self.fields, &self.from)
    }

    /// What the destination is to hold.
    pub(super) fn destination(&self) -> Result<Cells, Error> {
        let cells = Cells::new(&self.space, &self.fields, &self.to)?;
        let Some((side, dim)) = self.list else { return Ok(cells) };
        let list = shuffled(self.space.dims()[dim].extent());
        Ok(match side {
            Listed::Take => cells.renumbered(dim, &list),
            Listed::Put => cells.renumbered(dim, &inverse(&list)),
        })
    }
}

/// `0..count` in an order that jumps about, the same every time (Fisher and Yates, xorshift64).
fn shuffled(count: u64) -> Vec<u64> {
    let mut list: Vec<u64> = (0..count).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for last in (1..list.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        list.swap(last, (state % (last as u64 + 1)) as usize);
    }
    list
}

fn inverse(list: &[u64]) -> Vec<u64> {
    let mut inverse = vec![0; list.len()];
    for (to, &from) in (0..).zip(list) {
        inverse[from as usize] = to;
    }
    inverse
}

#[cfg(test)]
mod tests {
    use super::super::family::problems_in;
    use super::*;
    use kernels::copy_slices;
    use model::Crossover;

    /// Small cases of every kind that the files have.
    const SMALL: &str = "
        [[family]]
        name = 'structures {fields} {from} {to}'
        back = 'back {fields} {from} {to}'
        dims = 'x=96'
        fields = '{fields}'
        from = '{from}'
        to = '{to}'
        for.fields = ['3*f4', 'u1,u2,f4,f8', 'aligned u1,f8,u2,f4', '2*V12', 'V12,V24', 'f4,V12,f8']
        for.from = ['<F, x>', '<x, F>']
        for.to = ['<x, F>', '<x_in=4, F, x_out>', '<x_in=8, F, x_out>']
        [[family]]
        name = 'matrix {type} {to}'
        back = 'matrix {type} {to} back'
        dims = 'y=24, x=40'
        fields = '{type}'
        from = 'yx'
        to = '{to}'
        for.type = ['u1', 'u2', 'f4', 'f8', 'c16']
        for.to = ['xy', '<F, x_in=8, y_in=8, x_out, y_out>', '<F, x_in=2, y, x_in2=4, x_out>']
        [[family]]
        name = 'pages {way} {to}'
        dims = 'p=17, n=3, h=5'
        fields = 'u2'
        from = 'pnh'
        to = '{to}'
        list = '{way} p'
        for.way = ['take', 'put']
        for.to = ['pnh', 'phn', 'hnp']
    ";

    /// The destination after the kernels, and whether it is right.
    fn moved(problem: &Problem) -> (Vec<u8>, bool) {
        let [from, to] = problem.side_bytes().unwrap().map(|b| b as usize);
        let (mut src, mut dst) = (vec![0; from], vec![0xA5; to]);
        problem.source().unwrap().fill(&mut src);
        for copy in problem.copies().unwrap() {
            copy_slices(&copy, &src, 0, &mut dst, 0).unwrap();
        }
        let right = problem.destination().unwrap().are_in(&dst);
        (dst, right)
    }

    #[test]
    fn what_the_kernels_move_is_where_the_cells_say() {
        let problems = problems_in("small", SMALL, Crossover::default()).unwrap();
        assert_eq!(problems.len(), 6 * 6 * 2 + 5 * 3 * 2 + 6);
        for problem in problems {
            assert!(moved(&problem).1, "{}", problem.name);
        }
    }

    #[test]
    fn a_wrong_byte_anywhere_but_in_padding_is_found() {
        for problem in problems_in("small", SMALL, Crossover::default()).unwrap() {
            let (mut dst, _) = moved(&problem);
            let cells = problem.destination().unwrap();
            let mut seen = 0;
            for at in 0..dst.len() {
                dst[at] ^= 0x10;
                seen += u64::from(!cells.are_in(&dst));
                dst[at] ^= 0x10;
            }
            assert_eq!(seen, problem.payload_bytes(), "{}", problem.name);
            assert!(!cells.are_in(&dst[1..]), "{}", problem.name);
        }
    }

    #[test]
    fn structures_have_padding_where_fields_are_innermost() {
        let problems = problems_in("small", SMALL, Crossover::default()).unwrap();
        let of = |name: &str| problems.iter().find(|p| p.name == name).unwrap().has_padding();
        assert_eq!(of("structures aligned u1,f8,u2,f4 <F, x> <x, F>"), [true, false]);
        assert_eq!(of("back aligned u1,f8,u2,f4 <F, x> <x, F>"), [false, true]);
        assert_eq!(of("structures u1,u2,f4,f8 <F, x> <x, F>"), [false, false]);
    }

    #[test]
    fn lists_are_permutations_that_jump_about() {
        let list = shuffled(1000);
        assert_eq!(inverse(&inverse(&list)), list);
        let neighbours = list.windows(2).filter(|w| w[0].abs_diff(w[1]) == 1).count();
        assert!(neighbours < 20, "{neighbours}");
        assert!(list.iter().zip(inverse(&list)).any(|(&a, b)| a != b));
    }
}
