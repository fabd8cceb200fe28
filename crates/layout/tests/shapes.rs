//! The canonical lists of conversions that people know.

use isometry_layout::{Part, Placement, Side, Stream, copies, parse, shape_class};
use model::{FieldSpace, IndexSpace, NdCopy, Selection, ShapeClass, Span, Stride};

fn part(space: &IndexSpace, fields: &FieldSpace, layout: &str, selection: &Selection) -> Part {
    let placement = Placement::of_layout(&parse(layout, space).unwrap(), space, fields).unwrap();
    let order: Vec<usize> = (0..fields.fields().len()).collect();
    placement.select(selection, &order).unwrap()
}

fn between(src: &Part, dst: &Part) -> Vec<NdCopy> {
    let stream = Stream::new(dst.layout(), dst.extents(), dst.phase(), dst.field_bytes()).unwrap();
    copies(Side::Instance(src), Side::Instance(dst), &stream, 0..stream.bytes())
}

fn list(dims: &[(&str, u64)], sizes: &[u64], (a, b): (&str, &str)) -> Vec<NdCopy> {
    let (space, fields) = (IndexSpace::of(dims).unwrap(), FieldSpace::packed(sizes).unwrap());
    let all = Selection::all(&space);
    between(&part(&space, &fields, a, &all), &part(&space, &fields, b, &all))
}

#[test]
fn equal_layouts_are_one_run() {
    for layout in ["<F, x, y>", "<x, y, F>", "<x_in=4, F, x_out, y>", "<y_in=3, x, F, y_out>"] {
        let list = list(&[("y", 6), ("x", 8)], &[4, 1, 8], (layout, layout));
        assert_eq!(list.len(), 1, "{layout}");
        assert!(list[0].dims.is_empty());
        assert_eq!(list[0].fields.len(), 1);
        assert_eq!(list[0].fields[0].bytes, 48 * 13);
    }
}

#[test]
fn aos_to_soa_is_one_copy_of_all_fields() {
    let list = list(&[("x", 100)], &[4, 4, 8], ("<F, x>", "<x, F>"));
    let [copy] = &list[..] else { panic!("{list:?}") };
    assert_eq!((copy.dims.len(), copy.fields.len()), (1, 3));
    assert_eq!(copy.fields[2].strides, [Stride { src: 16, dst: 8 }]);
    assert_eq!(copy.fields[2].dst_offset, 800);
    assert_eq!(shape_class(&list), ShapeClass::Interleave);
}

#[test]
fn a_transpose_is_one_copy_of_two_loops() {
    let list = list(&[("y", 30), ("x", 20)], &[4], ("yx", "xy"));
    let [copy] = &list[..] else { panic!("{list:?}") };
    assert_eq!(copy.dims.iter().map(|d| d.extent).collect::<Vec<_>>(), [20, 30]);
    let strides = [Stride { src: 4, dst: 120 }, Stride { src: 80, dst: 4 }];
    assert_eq!(copy.fields[0].strides, strides);
    assert_eq!(shape_class(&list), ShapeClass::Transpose);
}

#[test]
fn nhwc_to_nchw_joins_height_and_width() {
    let dims = [("n", 2), ("h", 4), ("w", 6), ("c", 3)];
    let list = list(&dims, &[1], ("nhwc", "nchw"));
    assert_eq!(list.len(), 1);
    assert_eq!(list[0].dims.iter().map(|d| d.extent).collect::<Vec<_>>(), [2, 3, 24]);
    assert_eq!(shape_class(&list), ShapeClass::Interleave);
    let dims = [("n", 2), ("h", 64), ("w", 6), ("c", 65)];
    let wide = self::list(&dims, &[1], ("nhwc", "nchw"));
    assert_eq!(shape_class(&wide), ShapeClass::Transpose);
}

#[test]
fn structures_to_tiles_is_one_copy() {
    let list =
        list(&[("y", 64), ("x", 64)], &[4, 8], ("<F, x, y>", "<x_in=8, y_in=8, F, x_out, y_out>"));
    assert_eq!(list.len(), 1);
}

#[test]
fn blocks_of_four_to_blocks_of_six_are_few_copies() {
    let list =
        list(&[("y", 1200), ("x", 5)], &[4], ("<F, y_in=4, x, y_out>", "<F, y_in=6, x, y_out>"));
    assert!(list.len() <= 4, "{}", list.len());
}

#[test]
fn pages_are_one_copy_with_a_table() {
    let space = IndexSpace::of(&[("page", 50), ("row", 16), ("col", 8)]).unwrap();
    let fields = FieldSpace::packed(&[2]).unwrap();
    let pages = |list: &[i64]| {
        let mut spans = Selection::all(&space).spans().to_vec();
        spans[0] = Span::List(list.into());
        Selection::new(&space, spans).unwrap()
    };
    let layout = "page,row,col";
    let scattered = part(&space, &fields, layout, &pages(&[7, 3, 9]));
    let packed = part(&space, &fields, layout, &pages(&[0, 1, 2]));
    let list = between(&scattered, &packed);
    let [copy] = &list[..] else { panic!("{list:?}") };
    assert_eq!(copy.dims.len(), 1);
    assert_eq!(copy.dims[0].src_index.as_deref(), Some(&[7, 3, 9][..]));
    assert_eq!(copy.dims[0].dst_index, None);
    assert_eq!(copy.fields[0].bytes, 256);
    assert_eq!(shape_class(&list), ShapeClass::Gather);
    let even = between(&part(&space, &fields, layout, &pages(&[3, 5, 7])), &packed);
    assert_eq!(shape_class(&even), ShapeClass::Run);
}

#[test]
fn windows_on_one_stream_are_one_run() {
    let space = IndexSpace::of(&[("y", 11), ("x", 13)]).unwrap();
    let stream = |layout: &str, phase: [u64; 2]| {
        Stream::new(&parse(layout, &space).unwrap(), &[11, 13], &phase, &[4, 2]).unwrap()
    };
    let blocked = "<x_in=4, F, y_in=3, x_out, y_out>";
    let window = |stream, base| Side::Stream { stream, base };
    let one = stream(blocked, [1, 2]);
    let list = copies(window(&one, 30), window(&one, 60), &one, 60..120);
    assert_eq!(list.len(), 1);
    assert_eq!((list[0].fields[0].src_offset, list[0].fields[0].dst_offset), (30, 0));
    // A split that no other component comes between is only notation.
    let (split, whole) = (stream("<F, x_in=4, x_out, y>", [0, 1]), stream("<F, x, y>", [0, 0]));
    assert_eq!(copies(window(&split, 0), window(&whole, 0), &split, 6..600).len(), 1);
}

#[test]
fn reversed_on_both_sides_is_one_run() {
    let space = IndexSpace::of(&[("x", 10)]).unwrap();
    let fields = FieldSpace::packed(&[4]).unwrap();
    let placement = Placement::of_strides(&space, &fields, &[-4]).unwrap();
    let part = placement.select(&Selection::all(&space), &[0]).unwrap();
    let list = between(&part, &part);
    assert!(list[0].dims.is_empty());
    assert_eq!((list[0].fields[0].bytes, list[0].fields[0].src_offset), (40, -36));
}

#[test]
fn an_empty_box_needs_no_copy() {
    assert!(list(&[("y", 0), ("x", 13)], &[4], ("yx", "xy")).is_empty());
    assert_eq!(shape_class(&[]), ShapeClass::Run);
}
