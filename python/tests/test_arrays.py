"""Arrays of others, wrapped; our own, seen from NumPy."""

import array
import gc
import weakref
from typing import Any

import numpy as np
import pytest

import isometry as iso


def filled(shape: tuple[int, ...], dtype: Any = "u4") -> Any:
    count = int(np.prod(shape))
    return np.arange(count, dtype="u4").astype(dtype).reshape(shape)


def test_an_ndarray_is_wrapped_in_place(m: iso.Machine) -> None:
    a, b = filled((4, 5)), np.zeros((5, 4), "u4")
    m.copy(m.wrap(a, dims="yx"), m.wrap(b, dims="xy")).wait()
    assert (b == a.T).all()


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[::2, ::3],
        lambda a: a[::-1, ::-2],
        lambda a: a.T,
        lambda a: a[3:, 1],
        lambda a: np.broadcast_to(a[0], (6, 12)),
    ],
)
def test_any_strides_are_a_source(m: iso.Machine, view: Any) -> None:
    a = view(filled((8, 12)))
    dims = "yx"[: a.ndim]
    dst = m.empty(dict(zip(dims, a.shape)), "u4", layout=dims[::-1])
    m.copy(m.wrap(a, dims=dims), dst).wait()
    assert (np.asarray(dst) == a).all()


def test_negative_strides_are_a_destination(m: iso.Machine) -> None:
    a, b = filled((6,)), np.zeros(12, "u4")
    m.copy(m.wrap(a, dims="x"), m.wrap(b[::-2], dims="x")).wait()
    assert (b[::-2] == a).all() and (b[::2] == 0).all()


def test_dims_may_be_named_bounded_or_left_out(m: iso.Machine) -> None:
    a = filled((2, 3))
    assert m.wrap(a, dims="batch,row").dims == {"batch": (0, 2), "row": (0, 3)}
    assert m.wrap(a, dims={"y": (-1, 1), "x": 3}).dims == {"y": (-1, 1), "x": (0, 3)}
    assert m.wrap(a).shape == (2, 3)
    wrongs: list[Any] = ["abc", {"y": 2}, {"y": 2, "x": 4}, {"y": 3, "x": (1, 4)}]
    for wrong in wrongs:
        with pytest.raises(ValueError):
            m.wrap(a, dims=wrong)
    with pytest.raises(TypeError):
        m.wrap(a, dims=7)  # type: ignore[arg-type]


def test_buffers_are_wrapped(m: iso.Machine) -> None:
    numbers = array.array("i", range(10))
    dst = m.empty({"x": 10}, "i4")
    m.copy(m.wrap(numbers, dims="x"), dst).wait()
    assert list(np.asarray(dst)) == list(range(10))
    back = bytearray(40)
    m.copy(dst, m.wrap(memoryview(back).cast("i"), dims="x")).wait()
    assert bytes(back) == numbers.tobytes()


@pytest.mark.parametrize("code", "bB?c")
def test_buffers_of_single_bytes_are_arrays_of_numpys_type(m: iso.Machine, code: Any) -> None:
    view = memoryview(bytearray(b"\0\1\1\0")).cast(code)
    dst = m.empty({"x": 4}, np.asarray(view).dtype)
    m.copy(m.wrap(view, dims="x"), dst).wait()
    assert bytes(dst.bytes()) == b"\0\1\1\0"


def test_a_buffer_is_given_back_though_its_machine_goes_first() -> None:
    # Who drops the machine waits for the copy, with the interpreter in its hands.
    buffer = bytearray(64 << 20)
    m = iso.Machine()
    src = m.wrap(memoryview(buffer).cast("H", (8192, 4096)), dims="yx")
    dst = m.empty(src.dims, "u2", layout="xy")
    m.copy(src, dst)
    del src, m
    gc.collect()
    iso.Machine().close()
    buffer.append(0)


def test_dlpack_is_wrapped(m: iso.Machine) -> None:
    class Exporter:
        def __init__(self, array: Any) -> None:
            self.array = array

        def __dlpack__(self, **options: Any) -> Any:
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            device: tuple[int, int] = self.array.__dlpack_device__()
            return device

    a, b = filled((3, 4), "f4"), np.zeros((4, 3), "f4")
    m.copy(m.wrap(Exporter(a), dims="yx"), m.wrap(Exporter(b), dims="xy")).wait()
    assert (b == a.T).all()


def test_what_exports_nothing_is_refused(m: iso.Machine) -> None:
    for wrong in [7, "text", [1, 2], object()]:
        with pytest.raises(TypeError):
            m.wrap(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        m.wrap(np.array([object()]))


def test_a_read_only_array_is_no_destination(m: iso.Machine) -> None:
    a = filled((4,))
    a.flags.writeable = False
    with pytest.raises(ValueError):
        m.copy(m.wrap(filled((4,)), dims="x"), m.wrap(a, dims="x"))
    with pytest.raises(ValueError):
        m.copy(m.wrap(filled((4,), "u1"), dims="x"), m.wrap(b"abcd", dims="x"))


def test_a_wrapped_array_lives_as_long_as_its_instance(m: iso.Machine) -> None:
    class Watched(np.ndarray[Any, Any]):
        pass

    a = filled((4,)).view(Watched)
    gone = weakref.ref(a)
    instance = m.wrap(a, dims="x")
    del a
    gc.collect()
    assert gone() is not None
    del instance
    gc.collect()
    # The last reference may go with a thread of the machine; any later call collects it.
    m.copy(m.wrap(filled((1,)), dims="x"), m.empty({"x": 1}, "u4")).wait()
    gc.collect()
    assert gone() is None


def test_numpy_sees_our_memory(m: iso.Machine) -> None:
    dst = m.empty({"n": 2, "h": 3, "w": 4, "c": 3}, "f4", layout="nchw")
    view = np.asarray(dst)
    assert view.shape == (2, 3, 4, 3) and view.dtype == np.dtype("f4")
    assert view.strides == (144, 16, 4, 48)
    view[1, 2, 3, 1] = 7
    raw = np.frombuffer(dst.bytes(), "f4").reshape(2, 3, 3, 4)
    assert raw[1, 1, 2, 3] == 7 and raw.sum() == 7
    assert np.from_dlpack(dst)[1, 2, 3, 1] == 7


def test_a_view_outlives_instance_and_machine() -> None:
    with iso.Machine() as machine:
        view = np.asarray(machine.empty({"x": 1000}, "u8"))
        raw = machine.empty({"x": 1000}, "u8").bytes()
    gc.collect()
    view[:] = 5
    raw[:8] = b"12345678"
    assert view.sum() == 5000 and bytes(raw[:8]) == b"12345678"


def test_bytes_are_the_linear_order_and_writable(m: iso.Machine) -> None:
    dst = m.empty({"y": 2, "x": 3}, "u1", layout="<F, y, x>")
    raw = dst.bytes()
    assert raw.format == "B" and not raw.readonly and raw.nbytes == 6
    raw[:] = bytes(range(6))
    assert np.asarray(dst).tolist() == [[0, 2, 4], [1, 3, 5]]


def test_fields_without_their_padding_have_no_strides(m: iso.Machine) -> None:
    padded = np.dtype({"names": ["a"], "formats": ["f4"], "offsets": [4], "itemsize": 8})
    with pytest.raises(iso.LayoutError):
        np.asarray(m.empty({"x": 4}, padded, layout="<x, F>"))
    assert np.asarray(m.empty({"x": 4}, padded)).dtype == padded


def test_blocks_have_bytes_but_no_strides(m: iso.Machine) -> None:
    dst = m.empty({"x": 10}, "u1", layout="<x_in=4, F, x_out>")
    assert dst.bytes().nbytes == 12 and bytes(dst.bytes()) == bytes(12)
    with pytest.raises(iso.LayoutError):
        np.asarray(dst)
    m.copy(m.wrap(np.arange(1, 11, dtype="u1"), dims="x"), dst).wait()
    assert bytes(dst.bytes()) == bytes([*range(1, 11), 0, 0])


def test_an_instance_says_what_it_is(m: iso.Machine) -> None:
    dst = m.empty({"y": (2, 5), "x": 4}, "i2")
    assert dst.dims == {"y": (2, 5), "x": (0, 4)} and dst.shape == (3, 4)
    assert dst.layout == "<F, x, y>" and dst.memory == "sys" and dst.nbytes == 24
    assert dst.dtype == np.dtype("i2") and "y=2..5" in repr(dst)


def test_a_layout_of_other_dims_is_refused(m: iso.Machine) -> None:
    for wrong in ["yz", "<F, x>", "<x, y>", "y", "<F, x_in=0, x_out, y>", ""]:
        with pytest.raises(iso.LayoutError):
            m.empty({"y": 2, "x": 3}, "u1", layout=wrong)
    with pytest.raises(ValueError):
        m.empty({"y": 2}, "u1", memory="moon")
    with pytest.raises(TypeError):
        m.empty({"y": 2}, "O")
    with pytest.raises(TypeError):
        m.empty("yx", "u1")  # type: ignore[arg-type]
