"""Files as instances: .npy, safetensors and raw."""

import struct
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import isometry as iso


@pytest.fixture
def images(tmp_path: Path) -> Any:
    a = np.random.default_rng(1).integers(0, 255, (6, 40, 50, 3), "u1")
    np.save(tmp_path / "in.npy", a)
    return a


def test_a_file_changes_its_layout(m: iso.Machine, tmp_path: Path, images: Any) -> None:
    f = m.open(tmp_path / "in.npy", dims="nhwc")
    assert f.dims == {"n": (0, 6), "h": (0, 40), "w": (0, 50), "c": (0, 3)}
    g = m.create(tmp_path / "out.npy", like=f, layout="nchw")
    assert not (tmp_path / "out.npy").exists()
    m.copy(f, g, sync=True).wait()
    out = np.load(tmp_path / "out.npy")
    assert out.shape == (6, 3, 40, 50) and (out == images.transpose(0, 3, 1, 2)).all()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.npy", "out.npy"]


@pytest.mark.parametrize("algorithm", ["full", "simple", "spsl", "spdl"])
def test_every_algorithm_moves_the_same_bytes(
    m: iso.Machine, tmp_path: Path, images: Any, algorithm: Any
) -> None:
    f = m.open(tmp_path / "in.npy", dims="nhwc")
    g = m.create(tmp_path / "out.npy", like=f, layout="cwhn")
    m.copy(f, g, algorithm=algorithm).wait()
    assert (np.load(tmp_path / "out.npy") == images.transpose(3, 2, 1, 0)).all()


def test_files_and_memory(m: iso.Machine, tmp_path: Path, images: Any) -> None:
    f = m.open(tmp_path / "in.npy", dims="nhwc")
    held = m.empty(f.dims, "u1", layout="wcnh")
    m.copy(f, held).wait()
    assert (np.asarray(held) == images).all()
    with pytest.raises(ValueError):
        np.asarray(f)
    with pytest.raises(ValueError):
        f.bytes()
    part = m.empty({"n": 2, "h": 5, "w": 7, "c": 3}, "u1")
    m.copy(f.box({"n": (3, 5), "h": (10, 15), "w": (2, 9)}), part).wait()
    assert (np.asarray(part) == images[3:5, 10:15, 2:9]).all()


def test_a_part_of_a_file_needs_a_commit(m: iso.Machine, tmp_path: Path) -> None:
    path = tmp_path / "out.npy"
    g = m.create(path, dims={"x": 1000}, dtype="f4")
    m.copy(m.wrap(np.full(10, 3, "f4"), dims="x"), g.box({"x": (5, 15)})).wait()
    assert not path.exists()
    g.commit()
    out = np.load(path)
    assert out[5:15].sum() == 30 and out.sum() == 30
    with pytest.raises(ValueError, match="was committed"):
        g.commit()
    with pytest.raises(ValueError):
        m.empty({"x": 1}, "u1").commit()


def test_what_is_not_committed_leaves_nothing(tmp_path: Path) -> None:
    with iso.Machine() as machine:
        machine.create(tmp_path / "out.npy", dims={"x": 1000}, dtype="f4")
        kept = machine.create(tmp_path / "kept.npy", dims={"x": 1000}, dtype="f4")
        machine.copy(
            machine.empty({"x": 10}, "f4"), kept.box({"x": (0, 10)})
        ).wait()
    del kept
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_replaced_only_when_whole(m: iso.Machine, tmp_path: Path, images: Any) -> None:
    path = tmp_path / "out.npy"
    np.save(path, np.zeros(3))
    f = m.open(tmp_path / "in.npy", dims="nhwc")
    g = m.create(path, like=f)
    assert np.load(path).shape == (3,)
    m.copy(f, g).wait()
    assert (np.load(path) == images).all()


def test_fortran_order(m: iso.Machine, tmp_path: Path) -> None:
    a = np.asfortranarray(np.arange(12, dtype="i8").reshape(3, 4))
    np.save(tmp_path / "f.npy", a)
    f = m.open(tmp_path / "f.npy", dims="yx")
    assert f.layout == "<F, y, x>"
    held = m.empty(f.dims, "i8")
    m.copy(f, held).wait()
    assert (np.asarray(held) == a).all()


def test_structures_in_npy(m: iso.Machine, tmp_path: Path) -> None:
    dtype = np.dtype([("id", "u1"), ("x", "f8")], align=True)
    a = np.zeros(100, dtype)
    a["id"], a["x"] = np.arange(100), np.arange(100) / 3
    np.save(tmp_path / "s.npy", a)
    f = m.open(tmp_path / "s.npy", dims="i")
    g = m.create(tmp_path / "t.npy", like=f)
    m.copy(f, g).wait()
    out = np.load(tmp_path / "t.npy")
    assert (out["id"] == a["id"]).all() and (out["x"] == a["x"]).all()


def test_what_npy_cannot_say(m: iso.Machine, tmp_path: Path) -> None:
    with pytest.raises(iso.LayoutError):
        m.create(tmp_path / "a.npy", dims={"x": 8}, dtype="f4", layout="<F, x_in=4, x_out>")
    with pytest.raises(iso.LayoutError):
        m.create(tmp_path / "a.npy", dims={"x": 8}, dtype=[("a", "f4"), ("b", "f4")], layout="<x, F>")
    assert list(tmp_path.iterdir()) == []


def write_safetensors(path: Path, tensors: dict[str, Any]) -> None:
    header, data = {}, b""
    for name, (kind, a) in tensors.items():
        raw = a.tobytes()
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": kind, "shape": a.shape, "data_offsets": offsets}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def test_safetensors(m: iso.Machine, tmp_path: Path) -> None:
    a = np.arange(24, dtype="f4").reshape(4, 6)
    b = np.arange(5, dtype="i8")
    write_safetensors(tmp_path / "w.safetensors", {"a": ("F32", a), "b": ("I64", b)})
    f = m.open(tmp_path / "w.safetensors", dims="yx", tensor="a")
    held = m.empty(f.dims, "f4", layout="xy")
    m.copy(f, held).wait()
    assert (np.asarray(held) == a).all()
    with pytest.raises(ValueError, match="no tensor `c`; the file has a, b"):
        m.open(tmp_path / "w.safetensors", tensor="c")
    g = m.create(tmp_path / "one.safetensors", like=f)
    m.copy(f, g).wait()
    again = m.empty(f.dims, "f4")
    m.copy(m.open(tmp_path / "one.safetensors", dims="yx"), again).wait()
    assert (np.asarray(again) == a).all()


def test_a_file_too_short_for_a_tensor(m: iso.Machine, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    for length in [0, 1, 7, 8]:
        path.write_bytes(bytes(length))
        with pytest.raises(iso.FileFormatError, match="w.safetensors: not a valid safetensors header"):
            m.open(path)


def test_raw_files(m: iso.Machine, tmp_path: Path) -> None:
    a = np.arange(60, dtype="u2").reshape(6, 10)
    (tmp_path / "a.bin").write_bytes(a.tobytes())
    f = m.open(tmp_path / "a.bin", dims={"y": 6, "x": 10}, dtype="u2")
    held = m.empty({"x": 10, "y": 6}, "u2")
    m.copy(f, held).wait()
    assert (np.asarray(held) == a.T).all()
    blocked = m.create(
        tmp_path / "b.bin", dims={"y": 6, "x": 10}, dtype="u2", layout="<F, x_in=4, y, x_out>"
    )
    m.copy(f, blocked).wait()
    padded = np.zeros((6, 12), "u2")
    padded[:, :10] = a
    expected = padded.reshape(6, 3, 4).transpose(1, 0, 2)
    out = np.fromfile(tmp_path / "b.bin", "u2").reshape(3, 6, 4)
    assert (out == expected).all()
    with pytest.raises((iso.Error, ValueError)):
        m.open(tmp_path / "a.bin", dims={"y": 7, "x": 10}, dtype="u2")
    with pytest.raises((TypeError, ValueError)):
        m.open(tmp_path / "a.bin")


def test_what_a_file_says_itself_is_not_given(m: iso.Machine, tmp_path: Path, images: Any) -> None:
    path = tmp_path / "in.npy"
    with pytest.raises(ValueError, match="not for .npy files"):
        m.open(path, dims={"q": 9}, dtype="f8")
    with pytest.raises(ValueError, match="not for .npy files"):
        m.open(path, tensor="t")
    with pytest.raises(TypeError, match="layout"):
        m.open(path, dims="nhwc", layout="nchw")
    with pytest.raises(ValueError, match="not for .npy files"):
        m.create(tmp_path / "out.npy", dims={"x": 1}, dtype="u1", tensor="t")


def test_damaged_files(m: iso.Machine, tmp_path: Path, images: Any) -> None:
    whole = (tmp_path / "in.npy").read_bytes()
    bad = tmp_path / "bad.npy"
    for content in [b"", b"\x93NUMPY", whole[:40], whole[:-1], b"x" + whole[1:]]:
        bad.write_bytes(content)
        with pytest.raises(iso.FileFormatError):
            m.open(bad, dims="nhwc")
    with pytest.raises(FileNotFoundError):
        m.open(tmp_path / "none.npy")
    with pytest.raises(OSError):
        m.open(tmp_path)
    with pytest.raises(OSError):
        m.create(tmp_path / "no" / "dir.npy", dims={"x": 1}, dtype="u1")
    with pytest.raises((ValueError, iso.Error)):
        m.open(tmp_path / "in.npy", dims="nhw")


def test_a_file_that_shrinks_meanwhile_fails_cleanly(m: iso.Machine, tmp_path: Path) -> None:
    a = np.zeros((64, 1 << 14), "u4")
    np.save(tmp_path / "a.npy", a)
    f = m.open(tmp_path / "a.npy", dims="yx")
    g = m.create(tmp_path / "b.npy", like=f, layout="xy")
    with open(tmp_path / "a.npy", "r+b") as file:
        file.truncate(1 << 20)
    with pytest.raises(iso.TransferError) as raised:
        m.copy(f, g).wait()
    assert raised.value.hop == 0 and raised.value.cause
    del g
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npy"]


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full here")
    with iso.Machine() as machine:
        with pytest.raises((OSError, iso.Error)):
            machine.open(full, dims={"x": 4}, dtype="u1")


def test_like_a_box(m: iso.Machine, tmp_path: Path, images: Any) -> None:
    part = m.open(tmp_path / "in.npy", dims="nhwc").box({"n": (1, 3)})
    g = m.create(tmp_path / "part.npy", like=part, layout="ncwh")
    m.copy(part, g).wait()
    assert (np.load(tmp_path / "part.npy") == images[1:3].transpose(0, 3, 2, 1)).all()


def test_like_keeps_the_bounds(m: iso.Machine, tmp_path: Path) -> None:
    like = m.empty({"n": (8, 16), "x": (-2, 2)}, "u1")
    g = m.create(tmp_path / "a.npy", like=like.box({"x": (0, 2)}))
    assert g.dims == {"n": (8, 16), "x": (0, 2)}
    m.copy(like.box({"n": (8, 10), "x": (0, 2)}), g.box({"n": (8, 10)})).wait()
