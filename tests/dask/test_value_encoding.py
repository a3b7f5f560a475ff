"""Values as contents of drops."""

import io
import mmap
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.dask_tasks.value_encoding import decode_value, encode_value, read_value

_ARRAYS = st.builds(
    lambda dtype, shape, order, step: np.asarray(
        np.arange(int(np.prod(shape)) * step, dtype="i8").astype(dtype)[::step].reshape(shape), order=order
    ),
    st.sampled_from(["f8", "i2", ">i4", "c16", "?", "M8[s]", "S3", "U2", "O"]),
    st.lists(st.integers(0, 40), max_size=3).map(tuple),
    st.sampled_from(["C", "F"]),
    st.integers(1, 2),
)


def _through(value: Any) -> Any:
    return decode_value(bytearray(b"".join(encode_value(value))))


@given(_ARRAYS)
def test_arrays_are_the_same(array: np.ndarray[Any, Any]) -> None:
    """An array of any type, size and order comes back with type, shape and values, and can be written to."""
    found = _through(array)

    assert found.dtype == array.dtype
    assert found.shape == array.shape
    assert np.array_equal(found, array)
    assert found.flags.writeable


def test_large_arrays_are_npy_and_the_rest_is_pickled() -> None:
    """Other programs read a large array; a small value is a plain pickle."""
    large, small = np.arange(1000.0).reshape(20, 50).T, [np.arange(3), "text"]

    assert np.array_equal(np.load(io.BytesIO(b"".join(encode_value(large)))), large)
    assert pickle.loads(b"".join(encode_value(small)))[1] == "text"  # noqa: S301 - written above


@given(st.lists(st.integers(0, 3000), max_size=5))
def test_buffers_are_beside_the_pickle(lengths: list[int]) -> None:
    """Several arrays in one value are views of the content, at multiples of 64 bytes."""
    value = {number: np.arange(length, dtype="f8") for number, length in enumerate(lengths)}
    content = bytearray(b"".join(encode_value(value)))

    found = decode_value(content)

    assert all(np.array_equal(found[number], array) for number, array in value.items())
    base = np.frombuffer(content, dtype="u1").ctypes.data
    for array in found.values():
        if array.nbytes >= 4096:
            assert (array.ctypes.data - base) % 64 == 0


def test_what_is_in_no_module_travels() -> None:
    """Functions that another process cannot import are in the content."""
    factor = 3

    assert pickle.loads(b"".join(encode_value(lambda value: value * factor)))(2) == 6  # noqa: S301 - see above


def test_what_cannot_be_pickled_raises() -> None:
    """The error of pickle is passed on."""
    with pytest.raises(TypeError, match=r"cannot pickle"):
        encode_value(mmap.mmap(-1, 1))


def test_a_mapped_content_is_not_changed(tmp_path: Path) -> None:
    """Writing to an array of a file changes neither the file nor what another reader sees."""
    path = tmp_path / "content"
    path.write_bytes(b"".join(encode_value(np.zeros(10_000))))

    for _ in range(2):
        with path.open("rb") as stream:
            array = read_value(stream)
        assert array.sum() == 0
        array += 1


@pytest.mark.parametrize("shape", [(100, 100), (1, 10_000), (3, 100, 100)])
def test_repeated_elements_are_written_once(shape: tuple[int, ...]) -> None:
    """An array that repeats its elements stays small, and has its type and values afterwards. It stays read-only."""
    one = np.broadcast_to(np.float32(2.5), shape)
    rows = np.broadcast_to(np.arange(shape[-1], dtype=">i4"), shape)
    for array, most in ((one, 500), (rows, 500 + rows[..., :1, :].size * 4)):
        content = bytearray(b"".join(encode_value(array)))
        found = decode_value(content)

        assert len(content) < most
        assert found.dtype == array.dtype
        assert np.array_equal(found, array)
        assert not found.flags.writeable
