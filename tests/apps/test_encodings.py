"""Encodings round-trip, refuse what they cannot hold, and accept unambiguous contents of other encodings."""

import io
import math
import pickle
import sys
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dropflow.apps.encodings import DEFAULT, ENCODINGS, canonical, decode, decode_all, encode, is_text, separator
from dropflow.errors import AppError, BadParameterError, MissingDependencyError


class Content:
    """A content as an input offers it."""

    port = "in"
    name = "the data"

    def __init__(self, body: bytes, *, text: bool = False, memory: bool = True, joint: bool = False) -> None:
        self.body = body
        self.is_joint = joint
        self.is_text = text
        self.in_memory = memory
        self.size = len(body)
        self.path = Path("/some/where")
        self.url = "file:///some/where"
        self.warnings: list[str] = []

    def view(self) -> memoryview:
        """Return the whole content."""
        return memoryview(self.body)

    def read(self) -> bytes:
        """Return the whole content."""
        return self.body

    def open(self) -> BinaryIO:
        """Return the whole content."""
        return io.BytesIO(self.body)

    def warn(self, text: str) -> None:
        """Record the warning."""
        self.warnings.append(text)


def _round_trip(encoding: str, value: Any) -> Any:
    return decode(encoding, Content(encode(encoding, value), text=is_text(encoding)))


_PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
_VALUES = st.recursive(
    _PLAIN, lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner)
)
_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
)
_LITERALS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.binary()
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.integers() | st.text("abc"), inner),
)
_LINES = st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"]), min_size=1, max_size=50)


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["pickle", "dill"])
@given(value=_VALUES)
def test_pickle_round_trips_any_value(encoding: str, value: Any) -> None:
    """Decoded values are equal to the originals and have the same type."""
    found = _round_trip(encoding, value)

    assert found == value
    assert type(found) is type(value)


@pytest.mark.slow
@given(_JSON)
def test_json_round_trips_json_values(value: Any) -> None:
    """Every value that JSON can represent is decoded unchanged."""
    assert _round_trip("json", value) == value


@pytest.mark.slow
@given(_LITERALS)
def test_eval_round_trips_literals(value: Any) -> None:
    """Python literals, including strings, are decoded unchanged, and no code is evaluated."""
    found = _round_trip("eval", value)

    assert found == value
    assert type(found) is type(value)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_utf8_round_trips_text(value: str) -> None:
    """Text is decoded unchanged."""
    assert _round_trip("utf-8", value) == value


@pytest.mark.parametrize("encoding", ["raw", "binary", "base64"])
@given(value=st.binary(max_size=200_000))
def test_bytes_round_trip_unchanged(encoding: str, value: bytes) -> None:
    """All bytes are decoded unchanged."""
    assert _round_trip(encoding, value) == value


@given(hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(min_dims=0, min_side=0)))
def test_npy_round_trips_arrays(value: Any) -> None:
    """Arrays keep values, type and shape."""
    found = _round_trip("npy", value)

    assert (found.dtype, found.shape) == (value.dtype, value.shape)
    assert found.tobytes() == value.tobytes()


@given(_LINES)
def test_paths_round_trip_through_memory(value: str) -> None:
    """A path that was written to a memory drop is the path that is read."""
    assert _round_trip("path", value) == value


def test_urls_round_trip_through_memory() -> None:
    """A URL that was written to a memory drop is the URL that is read."""
    assert _round_trip("dataurl", "https://example.org/x?y=1") == "https://example.org/x?y=1"


def test_functions_and_classes_are_pickled_by_value() -> None:
    """Functions and classes that another process cannot import are part of the pickle."""

    class Local:
        value = 7

    body = encode("pickle", (lambda number: number + Local.value, Local))
    function, made = decode("dill", Content(body))

    assert (function(1), made.value) == (8, 7)


def test_unknown_encodings_list_the_known() -> None:
    """A wrong name is an error that lists the right ones; any case and a few other spellings are right."""
    with pytest.raises(BadParameterError, match="'pikle'") as caught:
        canonical("pikle")
    assert all(name in caught.value.hint for name in ENCODINGS)
    assert [canonical(name) for name in ("UTF8", " Pickle ", "numpy", "", None)] == [
        "utf-8", "pickle", "npy", DEFAULT, DEFAULT,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("encoding", "value"),
    [
        ("pickle", (number for number in ())),
        ("json", {1: 2}),
        ("json", (1, 2)),
        ("json", math.nan),
        ("json", "\ud800"),
        ("json", b"x"),
        ("json", np.int64(1)),
        ("eval", object()),
        ("eval", math.inf),
        ("eval", np.int64(3)),
        ("npy", [[1], [1, 2]]),
        ("npy", [object()]),
        ("npy", b"ab\0"),
        ("npy", ["ab\0"]),
        ("npy", [1, "a"]),
        ("npy", [2**63 + 1, -1]),
        ("npy", [2**53 + 1, 0.5]),
        ("npy", np.ma.array([1.0, 2.0], mask=[False, True])),
        ("utf-8", b"\xff"),
        ("utf-8", "\ud800"),
        ("raw", 5),
        ("raw", [1]),
        ("binary", "text"),
        ("base64", "text"),
        ("path", 5),
        ("path", "two\nlines"),
        ("dataurl", "no url"),
    ],
)
def test_values_that_an_encoding_cannot_represent_are_refused(encoding: str, value: Any) -> None:
    """An encoding that would lose or change a value raises an error with the type of the value."""
    with pytest.raises(AppError, match=f"encoding '{encoding}' cannot hold {type(value).__name__}"):
        encode(encoding, value)


@pytest.mark.parametrize(
    ("value", "text"), [(5, b"5"), ([1, "a"], b"[1, 'a']"), (np.float64(2.5), b"2.5"), (b"ok", b"ok"), (None, b"None")]
)
def test_utf8_writes_other_values_as_text(value: Any, text: bytes) -> None:
    """Numbers and lists become readable text, as in DALiuGE; graphs rely on that."""
    assert encode("utf-8", value) == text


def test_utf8_writes_all_numbers_of_a_large_array() -> None:
    """The text of an array of 2,000 numbers has all of them, also if the array is in a list."""
    array = np.arange(2000)

    assert encode("utf-8", array).strip(b"[]").split() == [b"%d" % number for number in range(2000)]
    assert b" 1000," in encode("utf-8", [array])


@pytest.mark.parametrize(
    "value", [5, [1, 2.5], [math.nan, math.inf], [[True], [False]], "a", [b"a", b"bc"], [1 + 2j], []]
)
def test_npy_writes_values_that_an_array_can_hold(value: Any) -> None:
    """Numbers, text and nested lists that numpy converts without a change are written."""
    assert repr(decode("npy", Content(encode("npy", value))).tolist()) == repr(np.asarray(value).tolist())


@pytest.mark.parametrize("encoding", ["pickle", "dill", "eval"])
def test_empty_content_is_decoded_as_none(encoding: str) -> None:
    """An empty content is decoded as None."""
    assert decode(encoding, Content(b"")) is None


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("pickle", b"plain text"),
        ("pickle", b"\x80\x04broken"),
        ("npy", b"no array"),
        ("npy", b"\x93NUMPY\x01"),
        ("json", b"{"),
        ("eval", b"f(x)"),
        ("utf-8", b"\xff\xfe"),
        ("base64", b"?"),
    ],
)
def test_contents_of_another_encoding_are_named(encoding: str, body: bytes) -> None:
    """The error has the input, the port, the encoding, and the beginning of the content."""
    with pytest.raises(AppError, match=rf"input 'the data' at port 'in' is not in encoding '{encoding}'") as caught:
        decode(encoding, Content(body, memory=False))
    assert repr(body[:16]) in caught.value.text
    assert "producer" in caught.value.hint


@pytest.mark.parametrize("encoding", ["pickle", "dill"])
def test_text_drops_can_be_read_at_pickle_ports(encoding: str) -> None:
    """A String drop is read as its text, also if that is empty."""
    assert decode(encoding, Content(b"hello", text=True)) == "hello"
    assert decode(encoding, Content(b"", text=True)) == ""


@pytest.mark.parametrize(
    ("encoding", "value", "expected"),
    [
        ("utf-8", "hello", "hello"),
        ("utf-8", 5, "5"),
        ("eval", [1], [1]),
        ("json", {"a": 1}, {"a": 1}),
        ("path", "/a/b", "/a/b"),
    ],
)
def test_pickles_in_memory_can_be_read_at_ports_of_other_encodings(encoding: str, value: Any, expected: Any) -> None:
    """A pickle that this session wrote is decoded at ports of all encodings."""
    assert decode(encoding, Content(encode("pickle", value))) == expected


def test_arrays_can_be_read_at_pickle_and_npy_ports() -> None:
    """A pickled array is decoded at an npy port, and an npy array at a pickle port."""
    array = np.arange(3)

    assert decode("npy", Content(encode("pickle", array))).tolist() == [0, 1, 2]
    assert decode("pickle", Content(encode("npy", array), memory=False)).tolist() == [0, 1, 2]


class _Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("a file was unpickled",))


@pytest.mark.parametrize("encoding", ["eval", "json", "npy"])
def test_files_are_unpickled_only_at_pickle_ports(encoding: str) -> None:
    """A pickle in a file runs no code unless the port asks for a pickle."""
    with pytest.raises(AppError, match="is not in encoding"):
        decode(encoding, Content(pickle.dumps(_Trap()), memory=False))


def test_a_pickle_in_a_file_is_bytes_at_a_port_for_text() -> None:
    """Functions for DALiuGE unpickle the bytes themselves: nothing is unpickled here, and the log has a warning."""
    source = Content(pickle.dumps(_Trap()), memory=False)

    assert decode("utf-8", source) == source.body
    assert "'the data' at port 'in' is a pickle and no text" in source.warnings[0]


_SEVERAL = ["pickle", "dill", "npy", "json", "eval"]


@pytest.mark.parametrize("encoding", _SEVERAL)
@pytest.mark.parametrize("memory", [True, False])
def test_all_values_of_several_producers_are_read(encoding: str, *, memory: bool) -> None:
    """Consecutive values are decoded as a list in their order, also if they look alike."""
    values = [1, 2, -3, 45]
    body = b"".join(encode(encoding, value) + separator(encoding) for value in values)

    assert decode(encoding, Content(body, memory=memory)) == values
    assert decode_all(encoding, Content(body, memory=memory)) == values


@pytest.mark.parametrize("encoding", _SEVERAL)
def test_a_content_of_several_producers_is_always_a_list(encoding: str) -> None:
    """If the graph has several producers for a drop, its value is a list even if only one or none wrote."""
    body = encode(encoding, 7) + separator(encoding)

    assert decode(encoding, Content(body, joint=True)) == [7]
    assert decode(encoding, Content(b"", joint=True)) == []
    assert decode(encoding, Content(body)) == 7


@pytest.mark.slow
@given(st.lists(_VALUES, min_size=2, max_size=4))
def test_any_values_are_distinguished(values: list[Any]) -> None:
    """Each value of several producers is decoded separately, for any values."""
    pickled = b"".join(encode("pickle", value) for value in values)

    assert decode("pickle", Content(pickled)) == values


@pytest.mark.slow
@given(st.lists(_JSON, min_size=2, max_size=4))
def test_json_of_several_producers_is_separated(values: list[Any]) -> None:
    """JSON values on separate lines are separate values."""
    body = b"".join(encode("json", value) + separator("json") for value in values)

    assert decode("json", Content(body)) == values


def test_pickles_and_arrays_may_follow_each_other() -> None:
    """Producers of one drop may use different encodings for ports of values."""
    body = encode("pickle", "a") + encode("npy", [1, 2]) + encode("pickle", "b")
    first, second, third = decode("pickle", Content(body))

    assert (first, second.tolist(), third) == ("a", [1, 2], "b")


@pytest.mark.parametrize(
    ("encoding", "body"),
    [("pickle", encode("pickle", 1) + b"rest"), ("npy", encode("npy", 1) + b"rest"), ("json", b"2024-11-22")],
)
def test_trailing_bytes_that_are_not_a_value_are_refused(encoding: str, body: bytes) -> None:
    """If the bytes after a value are not a value, the content is refused; the first value is not used alone."""
    with pytest.raises(AppError, match=r"4 bytes after value 1 are|more after its first value"):
        decode(encoding, Content(body))


def test_several_unexpected_values_are_reported() -> None:
    """A drop with one producer that holds several values (a raw gather) gives a list, with a warning in the log."""
    content = Content(encode("pickle", 1) + encode("pickle", 2))

    assert decode("pickle", content) == [1, 2]
    assert content.warnings == ["input 'the data' holds 2 values, one after the other: they are read as a list"]


def test_bytes_of_several_producers_are_joined() -> None:
    """Encodings of bytes and text read the contents of all producers, concatenated in order."""
    padded = b"".join(encode("base64", body) + separator("base64") for body in (b"a", b"bcd"))

    assert decode("base64", Content(padded, joint=True)) == b"abcd"
    assert decode("raw", Content(b"ab", joint=True)) == b"ab"
    assert decode("utf-8", Content(b"ab", joint=True, text=True)) == "ab"


def test_large_values_are_read_completely() -> None:
    """Arrays larger than any buffer are decoded unchanged, and no byte is left unread."""
    array = np.arange(300_000)
    content = Content(encode("pickle", array))

    assert (decode("pickle", content) == array).all()
    assert content.warnings == []


def test_missing_dill_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pickle that needs the package dill gives an error with the install command."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "dill"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "dill", None)
    body = b"\x80\x04cdill._dill\n_create_function\n."
    with pytest.raises(MissingDependencyError, match="written by dill") as caught:
        decode("dill", Content(body))
    assert "pip install" in caught.value.hint


def test_paths_of_files_and_of_other_contents() -> None:
    """A file is read as its path, text in memory as the path that it contains, other contents as a temporary file."""
    assert decode("path", Content(b"text", memory=False)) == "/some/where"
    assert decode("path", Content(b"two\nlines", text=True)) == "/some/where"
    assert decode("path", Content(b"\x00\x01")) == "/some/where"
    assert decode("dataurl", Content(b"text", memory=False)) == "file:///some/where"
