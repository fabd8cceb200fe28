"""What a copy moves, against NumPy."""

import itertools
import random
from typing import Any

import numpy as np
import pytest

import isometry as iso

DTYPES = ["u1", "i2", "f4", "f8", "c16", "S3", "M8[ns]", ">i4", "?"]


def random_array(rng: random.Random, shape: tuple[int, ...], dtype: Any) -> Any:
    dtype = np.dtype(dtype)
    if dtype.names:
        a = np.zeros(shape, dtype)
        for name in dtype.names:
            a[name] = random_array(rng, shape, dtype[name]) if not dtype[name].subdtype else 3
        return a
    count = int(np.prod(shape))
    if dtype.kind == "b":
        return np.array([rng.random() < 0.5 for _ in range(count)], "?").reshape(shape)
    raw = bytes(rng.randrange(1, 100) for _ in range(count * dtype.itemsize))
    return np.frombuffer(raw, dtype, count).reshape(shape)


def random_layout(rng: random.Random, dims: str) -> str:
    """A vector with F anywhere, and dims in blocks now and then."""
    parts = ["F"]
    for dim in dims:
        if rng.random() < 0.3:
            parts += [f"{dim}_in={rng.randint(1, 4)}", f"{dim}_out"]
        else:
            parts.append(dim)
    rng.shuffle(parts)
    return f"<{', '.join(parts)}>"


@pytest.mark.parametrize("seed", range(150))
def test_random_layouts(m: iso.Machine, seed: int) -> None:
    rng = random.Random(seed)
    dims = "abcd"[: rng.randint(1, 4)]
    shape = tuple(rng.choice([0, 1, 2, 3, 5, 8, 13]) for _ in dims)
    dtype = rng.choice(DTYPES)
    a = random_array(rng, shape, dtype)
    first = m.empty(dict(zip(dims, shape)), dtype, layout=random_layout(rng, dims))
    second = m.empty(dict(zip(dims, shape)), dtype, layout=random_layout(rng, dims))
    order = rng.sample(range(len(dims)), len(dims))
    back = np.zeros([shape[i] for i in order], dtype)
    m.copy(m.wrap(a, dims=dims), first).wait()
    m.copy(first, second).wait()
    m.copy(second, m.wrap(back, dims="".join(dims[i] for i in order))).wait()
    assert (back == a.transpose(order)).all()


@pytest.mark.parametrize("seed", range(80))
def test_random_boxes(m: iso.Machine, seed: int) -> None:
    rng = random.Random(1000 + seed)
    dims = "abc"[: rng.randint(1, 3)]
    here = tuple(rng.randint(1, 9) for _ in dims)
    there = tuple(rng.randint(1, 9) for _ in dims)
    a = random_array(rng, here, "i4")
    lows = [rng.randint(-5, 5) for _ in dims]
    dst = m.empty({d: (lo, lo + n) for d, lo, n in zip(dims, lows, there)}, "i4")
    np.asarray(dst)[...] = -1
    expected = np.asarray(dst).copy()
    src_box, dst_box, cut, paste = {}, {}, [], []
    for d, n, k, lo in zip(dims, here, there, lows):
        extent = rng.randint(0, min(n, k))
        i, j = rng.randint(0, n - extent), rng.randint(0, k - extent)
        src_box[d], dst_box[d] = (i, i + extent), (lo + j, lo + j + extent)
        cut.append(slice(i, i + extent))
        paste.append(slice(j, j + extent))
    expected[tuple(paste)] = a[tuple(cut)]
    m.copy(m.wrap(a, dims=dims).box(src_box), dst.box(dst_box)).wait()
    assert (np.asarray(dst) == expected).all()


STRUCTURES = [
    np.dtype([("a", "u1"), ("b", "f4"), ("c", "i2")]),
    np.dtype([("a", "u1"), ("b", "f8"), ("c", "i2")], align=True),
    np.dtype({"names": ["p", "q"], "formats": ["u2", "u1"], "offsets": [5, 1], "itemsize": 9}),
    np.dtype([("pos", "f4", (3,)), ("id", "u8")]),
]


@pytest.mark.parametrize("dtype", STRUCTURES, ids=str)
@pytest.mark.parametrize("layout", ["<F, x, y>", "<F, y, x>", "<y, F, x>", "<x, y, F>"])
def test_structures(m: iso.Machine, dtype: Any, layout: str) -> None:
    a = random_array(random.Random(5), (7, 4), dtype)
    soa = m.empty({"y": 7, "x": 4}, dtype, layout=layout)
    back = np.zeros_like(a)
    m.copy(m.wrap(a, dims="yx"), soa).wait()
    m.copy(soa, m.wrap(back, dims="yx")).wait()
    assert all((back[name] == a[name]).all() for name in dtype.names)
    if layout.startswith("<F"):
        view = np.asarray(soa)
        assert view.dtype == dtype and all((view[n] == a[n]).all() for n in dtype.names)
    else:
        with pytest.raises(iso.LayoutError):
            np.asarray(soa)


def test_fields_match_by_name(m: iso.Machine) -> None:
    a = np.array([(1, 2.5), (3, 4.5)], [("n", "i4"), ("v", "f8")])
    b = np.zeros(2, [("v", "f8"), ("n", "i4")])
    m.copy(m.wrap(a, dims="x"), m.wrap(b, dims="x")).wait()
    assert (b["n"] == a["n"]).all() and (b["v"] == a["v"]).all()


def test_pages_are_gathered(m: iso.Machine) -> None:
    pool = np.arange(10 * 6, dtype="u4").reshape(10, 6)
    source = m.wrap(pool, dims="page,token")
    dst = m.empty({"page": 4, "token": 6}, "u4", layout="token,page")
    m.copy(source.take("page", [7, 3, 9, 3]), dst).wait()
    assert (np.asarray(dst) == pool[[7, 3, 9, 3]]).all()
    # And scattered, at places of their own.
    target = np.zeros((10, 6), "u4")
    m.copy(dst.box({"page": (0, 3)}), m.wrap(target, dims="page,token").take("page", [2, 8, 0])).wait()
    assert (target[[2, 8, 0]] == pool[[7, 3, 9]]).all()
    assert (target[[1, 3, 4, 5, 6, 7, 9]] == 0).all()


def test_copy_many_is_one_event(m: iso.Machine) -> None:
    a = np.arange(600, dtype="u4").reshape(6, 100)
    dst = m.empty({"y": 6, "x": 100}, "u4")
    src = m.wrap(a, dims="yx")
    pairs = [(src.box({"y": (i, i + 1)}), dst.box({"y": (5 - i, 6 - i)})) for i in range(6)]
    event = m.copy_many(pairs)
    event.wait()
    assert (np.asarray(dst) == a[::-1]).all()
    assert event.progress() == (2400, 2400) and len(event.report()["copies"]) == 6
    m.copy_many([]).wait()


def test_a_large_copy_goes_through_the_engine(m: iso.Machine) -> None:
    a = np.arange(8 << 20, dtype="u4").reshape(2048, 4096)
    dst = m.empty({"y": 2048, "x": 4096}, "u4", layout="xy")
    event = m.copy(m.wrap(a, dims="yx"), dst, priority=3)
    event.wait(timeout=60)
    assert (np.asarray(dst) == a).all()
    report = event.report()
    assert report["bytes"] == a.nbytes and report["path"][0] == report["path"][-1] == "sys"
    assert sum(hop["bytes"] for hop in report["hops"]) >= a.nbytes
    assert all(hop["busy"] >= 0 for hop in report["hops"])


def test_the_padding_of_blocks_stays(m: iso.Machine) -> None:
    dst = m.empty({"x": 5}, "u1", layout="<x_in=4, F, x_out>")
    dst.bytes()[:] = b"\xee" * 8
    m.copy(m.wrap(np.arange(5, dtype="u1"), dims="x"), dst).wait()
    assert bytes(dst.bytes()) == bytes([0, 1, 2, 3, 4, 0xEE, 0xEE, 0xEE])


def test_an_urgent_copy_and_its_friends_all_arrive(m: iso.Machine) -> None:
    a = np.arange(1 << 20, dtype="u4").reshape(1024, 1024)
    targets = [m.empty({"y": 1024, "x": 1024}, "u4", layout="xy") for _ in range(6)]
    src = m.wrap(a, dims="yx")
    events = [m.copy(src, dst, priority=p) for p, dst in zip(itertools.cycle([0, 5, -5]), targets)]
    for event in events:
        event.wait(timeout=60)
    assert all((np.asarray(dst) == a).all() for dst in targets)
