//! Headers against the formats' own libraries, and against hostile bytes.

use isometry_files::{
    self as files, FileHeader, FilesError, FilesErrorKind, Format, dtype, npy, raw, tensors,
};
use model::{Component, FieldSpace, IndexSpace, Layout};
use proptest::prelude::*;

fn space() -> IndexSpace {
    IndexSpace::of(&[("n", 3), ("h", 4), ("c", 5)]).unwrap()
}

/// `<F, h, c, n>`: shape (n, c, h).
fn turned() -> Layout {
    use Component::{Fields, Whole};
    Layout::new(vec![Fields, Whole(1), Whole(2), Whole(0)], 3).unwrap()
}

fn read_npy(head: &[u8], data_bytes: u64) -> Result<FileHeader, FilesError> {
    npy::read(head, head.len() as u64 + data_bytes, None)
}

#[test]
fn what_we_write_npyz_reads() {
    let fields = dtype::parse("[('a', '<u2'), ('', '|V2'), ('b', '<f4', (2,))]").unwrap();
    let head = npy::write(&space(), &fields, &turned()).unwrap();
    assert_eq!(head.len() % 4096, 0);
    assert_eq!(npy::head_bytes(&head[..npy::PREAMBLE_BYTES]).unwrap(), head.len() as u64);
    let mut rest = &head[..];
    let theirs = npyz::NpyHeader::from_reader(&mut rest).unwrap();
    assert!(rest.is_empty());
    assert_eq!(theirs.shape(), [3, 5, 4]);
    assert_eq!(theirs.order(), npyz::Order::C);
    assert_eq!(theirs.dtype().num_bytes(), Some(12));
    let ours = read_npy(&head, 720).unwrap();
    assert_eq!((ours.space.extents(), ours.fields), (vec![3, 5, 4], fields));
    assert_eq!((ours.data_offset, ours.data_bytes), (4096, 720));
}

#[test]
fn what_npyz_writes_we_read() {
    use npyz::WriterBuilder;
    for order in [npyz::Order::C, npyz::Order::Fortran] {
        let mut file = Vec::new();
        let options = npyz::WriteOptions::new().default_dtype().order(order).shape(&[2, 3]);
        let mut writer = options.writer(&mut file).begin_nd().unwrap();
        writer.extend(0..6i64).unwrap();
        writer.finish().unwrap();
        let header = npy::read(&file, file.len() as u64, Some(&["y", "x"])).unwrap();
        assert_eq!(header.space, IndexSpace::of(&[("y", 2), ("x", 3)]).unwrap());
        assert_eq!(header.data_offset + header.data_bytes, file.len() as u64);
        let text = if order == npyz::Order::C { "<F, x, y>" } else { "<F, y, x>" };
        assert_eq!(header.layout.display(&header.space).to_string(), text);
    }
}

#[test]
fn one_dimension_and_none() {
    let line = IndexSpace::of(&[("x", 7)]).unwrap();
    let head = npy::write(&line, &dtype::parse("|u1").unwrap(), &Layout::row_major(1)).unwrap();
    assert_eq!(read_npy(&head, 7).unwrap().space.extents(), [7]);
    let scalar =
        b"\x93NUMPY\x01\x00\x36\x00{'descr': '<f4', 'fortran_order': False, 'shape': ()}\n";
    assert!(matches!(read_npy(scalar, 4), Err(FilesError::Model(_))));
}

#[test]
fn long_and_foreign_headers_get_the_version_they_need() {
    let entries: Vec<_> = (0..4000).map(|i| format!("('field_number_{i}', '<f4')")).collect();
    let long = dtype::parse(&format!("[{}]", entries.join(", "))).unwrap();
    let line = IndexSpace::of(&[("x", 2)]).unwrap();
    for (fields, version) in [(long, 2), (dtype::parse("[('naïve ☃', '<f4')]").unwrap(), 3)] {
        let head = npy::write(&line, &fields, &Layout::row_major(1)).unwrap();
        assert_eq!((head[6], head.len() % 4096), (version, 0));
        assert_eq!(read_npy(&head, 2 * fields.item_bytes()).unwrap().fields, fields);
    }
}

#[test]
fn numpy_reads_headers_that_are_short_but_for_their_padding() {
    let line = IndexSpace::of(&[("x", 2)]).unwrap();
    let head_of = |name_bytes: usize| {
        let fields = dtype::parse(&format!("[('{}', '<f4')]", "n".repeat(name_bytes))).unwrap();
        npy::write(&line, &fields, &Layout::row_major(1)).unwrap()
    };
    // NumPy refuses a text of more than 10,000 bytes, padding included, unless it is trusted.
    for (name_bytes, whole) in [(100, 4096), (8100, 8192), (9000, 9088), (9900, 9984)] {
        let head = head_of(name_bytes);
        assert_eq!((head.len(), head.len() % 64), (whole, 0), "{name_bytes}");
        assert!(read_npy(&head, 8).is_ok() && head.len() - 10 <= 10_000);
    }
    assert_eq!(head_of(10_000).len(), 12_288, "which it refuses in any case");
}

#[test]
fn names_are_latin_1_but_in_version_3() {
    let head = |version: u8, name: &[u8]| {
        let parts = [&b"{'descr': [('"[..], name, b"', '<f4')], 'fortran_order': False, "];
        let text = [&parts.concat()[..], b"'shape': (2,), }\n"].concat();
        let bytes = u32::try_from(text.len()).unwrap().to_le_bytes();
        let bytes = if version == 1 { &bytes[..2] } else { &bytes[..] };
        [b"\x93NUMPY", &[version, 0][..], bytes, &text].concat()
    };
    let name = |version, name: &[u8]| {
        let fields = read_npy(&head(version, name), 8)?.fields;
        Ok::<_, FilesError>(fields.fields()[0].name.to_string())
    };
    for version in [1, 2] {
        assert_eq!(name(version, b"\xe9").unwrap(), "é");
        assert_eq!(name(version, "é".as_bytes()).unwrap(), "Ã©", "as NumPy reads it");
    }
    assert_eq!(name(3, "é".as_bytes()).unwrap(), "é");
    assert!(name(3, b"\xe9").unwrap_err().to_string().contains("utf-8"));
}

#[test]
fn what_a_format_lacks_is_said() {
    let blocks = vec![
        Component::Fields,
        Component::Inner { dim: 0, level: 1, size: 2 },
        Component::Whole(1),
        Component::Whole(2),
        Component::Outer(0),
    ];
    let blocks = Layout::new(blocks, 3).unwrap();
    let apart =
        vec![Component::Whole(2), Component::Fields, Component::Whole(1), Component::Whole(0)];
    let apart = Layout::new(apart, 3).unwrap();
    let one = dtype::parse("<f4").unwrap();
    let two = dtype::parse("[('a', '<f4'), ('b', '<f4')]").unwrap();
    let refused =
        |r: Result<Vec<u8>, FilesError>| matches!(r, Err(FilesError::Inexpressible { .. }));
    assert!(refused(npy::write(&space(), &one, &blocks)));
    assert!(refused(npy::write(&space(), &two, &apart)));
    assert!(refused(npy::write(&space(), &FieldSpace::packed(&[0x10, 4]).unwrap(), &apart)));
    assert!(npy::write(&space(), &one, &apart).is_ok(), "a lone field is innermost anywhere");
    assert!(refused(tensors::write(&space(), &two, &turned(), "t")));
    assert!(refused(tensors::write(&space(), &dtype::parse("|S3").unwrap(), &turned(), "t")));
    assert!(refused(tensors::write(&space(), &one, &blocks, "t")));
    assert!(refused(tensors::write(&space(), &one, &turned(), "__metadata__")));
}

#[test]
fn safetensors_round_trip_through_their_library() {
    let head =
        tensors::write(&space(), &dtype::parse("bfloat16").unwrap(), &turned(), "w").unwrap();
    let mut file = head.clone();
    file.resize(head.len() + 120, 7);
    let theirs = safetensors::SafeTensors::deserialize(&file).unwrap();
    assert_eq!(theirs.tensor("w").unwrap().shape(), [3, 5, 4]);
    assert_eq!(theirs.tensor("w").unwrap().dtype(), safetensors::Dtype::BF16);
    let length = file.len() as u64;
    let ours = tensors::read(&head, length, Some("w"), Some(&["n", "c", "h"])).unwrap();
    assert_eq!((ours.data_offset, ours.data_bytes), (4096, 120));
    assert_eq!(&*ours.fields.fields()[0].dtype, "bfloat16");
    assert_eq!(tensors::read(&head, length, None, None).unwrap().space.extents(), [3, 5, 4]);
    assert!(matches!(
        tensors::read(&head, length, Some("v"), None),
        Err(FilesError::NoTensor { there, .. }) if there == ["w"]
    ));
    assert!(matches!(tensors::read(&head, length - 1, None, None), Err(FilesError::Length { .. })));
}

#[test]
fn a_tensor_among_several_is_found() {
    let json = br#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[2,1],"data_offsets":[4,12]}}"#;
    let mut head = (json.len() as u64).to_le_bytes().to_vec();
    head.extend_from_slice(json);
    let length = head.len() as u64 + 12;
    assert_eq!(tensors::names(&head, length).unwrap(), ["a", "b"]);
    let header = tensors::read(&head, length, Some("b"), None).unwrap();
    assert_eq!((header.data_offset, header.data_bytes), (head.len() as u64 + 4, 8));
    assert!(matches!(tensors::read(&head, length, None, None), Err(FilesError::NoTensor { .. })));
}

#[test]
fn what_is_too_short_for_a_tensor_says_where_it_ends() {
    let preamble = |text_bytes: u64| text_bytes.to_le_bytes().to_vec();
    let with = |text: &[u8]| [&preamble(text.len() as u64)[..], text].concat();
    for (head, why) in [
        (vec![], "it ends within its preamble"),
        (vec![0], "it ends within its preamble"),
        (vec![0; 7], "it ends within its preamble"),
        (preamble(0), "its text is empty"),
        (preamble(2), "it ends within its header"),
        (preamble(u64::MAX), "its text is 18446744073709551615 bytes long"),
        (with(b" "), "EOF while parsing"),
        (with(b"{}"), "no tensor `(none was named)`; the file has none"),
    ] {
        let refused = tensors::read(&head, head.len() as u64, None, None).unwrap_err();
        assert!(refused.to_string().contains(why), "{head:?}: {refused}");
        let named = tensors::names(&head, head.len() as u64);
        assert_eq!(named.is_ok(), why.starts_with("no tensor"), "{head:?}: {named:?}");
    }
}

#[test]
fn raw_files_must_match_their_shape() {
    let fields = dtype::parse("<f4").unwrap();
    let layout = Layout::row_major(3);
    let space = space();
    assert_eq!(raw::read((&space, &fields), &layout, 16, 256).unwrap().data_bytes, 240);
    for wrong in [255, 257] {
        let result = raw::read((&space, &fields), &layout, 16, wrong);
        assert_eq!(result, Err(FilesError::Length { needed_bytes: 256, file_bytes: wrong }));
    }
}

#[test]
fn blocks_are_padded_to_whole_ones() {
    let blocked = vec![
        Component::Inner { dim: 0, level: 1, size: 4 },
        Component::Fields,
        Component::Inner { dim: 0, level: 2, size: 3 },
        Component::Outer(0),
    ];
    let blocked = Layout::new(blocked, 1).unwrap();
    let line = IndexSpace::of(&[("x", 25)]).unwrap();
    let fields = dtype::parse("[('a', '|u1'), ('', '|V3'), ('b', '<f4')]").unwrap();
    assert_eq!(files::array_bytes(&line, &fields, &blocked), Ok(36 * 5));
    assert_eq!(files::array_bytes(&line, &fields, &Layout::row_major(1)), Ok(25 * 8));
}

#[test]
fn hostile_headers_are_errors() {
    let of_text = |text: &str| {
        let mut head = b"\x93NUMPY\x02\x00".to_vec();
        head.extend_from_slice(&u32::try_from(text.len()).unwrap().to_le_bytes());
        head.extend_from_slice(text.as_bytes());
        head
    };
    let dict = |descr: &str, order: &str, shape: &str| {
        of_text(&format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}"))
    };
    let nested = format!("{}'<f4'{}", "[('a', ".repeat(5000), ")]".repeat(5000));
    let cases = [
        dict("'<f4'", "False", "(9223372036854775807, 2)"),
        dict("'<f4'", "False", "(4294967296, 4294967296, 4)"),
        dict("'<f4'", "False", "(0, 9223372036854775807, 9223372036854775807)"),
        dict("'<f4'", "False", "(-1,)"),
        dict("'<f4'", "False", "(99999999999999999999999999999999999999999999,)"),
        dict("'<f4'", "False", "(1, 1, 1, 1, 1, 1, 1, 1, 1)"),
        dict("'<f4'", "False", "7"),
        dict("'<f4'", "0", "(7,)"),
        dict("'|V9223372036854775807'", "False", "(3,)"),
        dict("'|O'", "False", "(3,)"),
        dict("'<f7'", "False", "(3,)"),
        dict(&nested, "False", "(3,)"),
        dict(
            "[('a', '|V9223372036854775807'), ('b', '|V9223372036854775807'), ('c', '|V9')]",
            "True",
            "(1,)",
        ),
        of_text("{}"),
        of_text("['descr']"),
        of_text(""),
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff{".to_vec(),
        b"\x93NUMPY\x09\x00\x05\x00{}".to_vec(),
        b"\x93NUMPY\x01".to_vec(),
        b"PK\x03\x04".to_vec(),
        vec![],
    ];
    for head in cases {
        let error = npy::read(&head, u64::MAX, None).unwrap_err();
        let text = String::from_utf8_lossy(&head);
        assert_eq!(error.kind(), FilesErrorKind::Format, "{text}: {error}");
    }
    let fine = dict("'<f4'", "False", "(3, 4)");
    assert!(npy::read(&fine, fine.len() as u64 + 48, None).is_ok());
    assert!(matches!(read_npy(&fine, 47), Err(FilesError::Length { .. })));
    assert!(matches!(npy::read(&fine, 999, Some(&["x"])), Err(FilesError::Names { .. })));
}

#[test]
fn a_path_names_its_format() {
    for (path, format) in [
        ("a/b.npy", Format::Npy),
        ("w.safetensors", Format::Safetensors),
        ("x.bin", Format::Raw),
        ("npy", Format::Raw),
    ] {
        assert_eq!(Format::of_path(path.as_ref()), format);
    }
}

fn whole_headers() -> Vec<Vec<u8>> {
    let fields = dtype::parse("[('a', '<u2'), ('', '|V2'), ('b', ('<f4', (2,)))]").unwrap();
    let json = br#"{"__metadata__":{"k":"v"},"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#;
    let mut small = (json.len() as u64).to_le_bytes().to_vec();
    small.extend_from_slice(json);
    let mut npy = npy::write(&space(), &fields, &turned()).unwrap();
    npy.truncate(160);
    npy[8..10].copy_from_slice(&150u16.to_le_bytes());
    vec![npy, small]
}

proptest! {
    #[test]
    fn mutated_headers_never_panic(
        which in 0usize..2,
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        file_bytes in prop_oneof![0u64..10_000, any::<u64>()],
    ) {
        let mut head = whole_headers().swap_remove(which);
        for (at, byte) in edits {
            let at = at.index(head.len());
            head[at] = byte;
        }
        head.truncate(cut.index(head.len() * 4));
        let read = [npy::read(&head, file_bytes, None), tensors::read(&head, file_bytes, None, None)];
        for header in read.into_iter().flatten() {
            prop_assert!(header.data_offset + header.data_bytes <= file_bytes);
        }
    }

    #[test]
    fn any_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = npy::head_bytes(&bytes);
        let _ = tensors::head_bytes(&bytes);
        let mut npy_like = b"\x93NUMPY\x01\x00".to_vec();
        npy_like.extend_from_slice(&bytes);
        prop_assert!(npy::read(&npy_like, 1 << 40, None).is_err());
    }

    #[test]
    fn any_type_text_never_panics(text in "[\\[\\](){}',:|<>=a-zA-Z0-9 -]{0,60}") {
        if let Ok(fields) = dtype::parse(&text) {
            let described = dtype::describe(&fields);
            prop_assert!(described.is_err() || dtype::parse(&described.unwrap()).is_ok());
        }
    }

    #[test]
    fn structures_round_trip(parts in prop::collection::vec((0u64..9, 0usize..6, 0u64..4), 1..8), tail in 0u64..9) {
        let types = ["|u1", "<f4", ">i8", "|S5", "('<f4', (2, 3,))", "[('x', '<f4'), ('', '|V2')]"];
        let mut text = String::from("[");
        for (i, (pad, kind, repeat)) in parts.iter().enumerate() {
            let quote = |t: &str| if t.starts_with(['[', '(']) { t.to_owned() } else { format!("'{t}'") };
            if *pad > 0 {
                text += &format!("('', '|V{pad}'), ");
            }
            let shape = if *repeat > 0 { format!(", ({repeat},)") } else { String::new() };
            text += &format!("('f{i}', {}{shape}), ", quote(types[*kind]));
        }
        if tail > 0 {
            text += &format!("('', '|V{tail}')");
        }
        let fields = dtype::parse(&(text + "]")).unwrap();
        prop_assert_eq!(dtype::parse(&dtype::describe(&fields).unwrap()).unwrap(), fields);
    }
}
