"""The parser's door: cheap refusals first, and a reason for each."""

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from translator.formats import document as document_module
from translator.formats.document import parse, too_deep
from translator.options import ReadOptions

MEGABYTE = 1024 * 1024


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty"),
        (b" \n\t ", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b"{", "not JSON"),
        (b'{"a": 1', "not JSON"),
        (b'{"a": 1}}', "not JSON"),
        (b"{'a': 1}", "not JSON"),
        (b'{"a": NaN}', "not JSON"),
        (b'{"a": 1e999}', "not JSON"),
        (b"<html></html>", "not JSON"),
        (b"PK\x03\x04", "not JSON"),
        (b"\x1f\x8b\x08\x00", "not UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b"[" * 1000 + b"]" * 1000, "nested more than 200"),
    ],
    ids=repr,
)
def test_what_is_not_json_is_refused_with_a_reason_and_a_hint(data: bytes, reason: str) -> None:
    """Every unusable document gives one LG001 that says why and what to do."""
    value, problems = parse(data, ReadOptions())

    assert value is None
    assert [finding.code for finding in problems] == ["LG001"]
    assert reason in problems[0].text
    assert problems[0].hint


def test_a_syntax_error_is_placed_by_line_and_column() -> None:
    """The text says in which line and column the parser stopped."""
    _, problems = parse(b'{\n  "a": 1,\n  "b": ?\n}', ReadOptions())

    assert "line 3, column 8" in problems[0].text


def test_a_byte_order_mark_is_no_fault() -> None:
    """A document that starts with a UTF-8 byte order mark is read."""
    assert parse(b'\xef\xbb\xbf{"a": 1}', ReadOptions()).value == {"a": 1}


def test_size_is_looked_at_first() -> None:
    """A document above the limit is refused without being parsed, even if it is no JSON."""
    _, problems = parse(b"x" * 100, ReadOptions(max_bytes=99))

    assert "has 100 bytes" in problems[0].text


@pytest.mark.slow
@pytest.mark.parametrize("piece", [b"{", b"[", b'{"a":', b"\\", b'"', b" "], ids=repr)
def test_two_hundred_megabytes_of_rubbish_cost_little(piece: bytes) -> None:
    """A huge senseless file is refused with less than 64 MB of memory besides its own bytes."""
    data = piece * (200 * MEGABYTE // len(piece))
    tracemalloc.start()
    try:
        value, problems = parse(data, ReadOptions())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert value is None
    assert len(problems) == 1
    assert peak < 64 * MEGABYTE


def _depth(value: Any) -> int:
    """How deep lists and objects of a value are nested, the obvious way."""
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, value), default=0)
    return 0


_TEXTS = st.text(alphabet='\\"[]{}a/\n', max_size=8)
_VALUES = st.recursive(
    st.one_of(_TEXTS, st.integers(), st.booleans()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_TEXTS, inner, max_size=4)),
    max_leaves=20,
)


@given(value=_VALUES, chunk=st.integers(1, 12), indent=st.sampled_from([None, 1]))
def test_depth_is_that_of_the_parsed_value(value: Any, chunk: int, indent: int | None) -> None:
    """The scan of the bytes finds exactly the depth of the value, wherever its pieces are cut, strings or not."""
    data = json.dumps(value, indent=indent).encode()
    depth = _depth(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(document_module, "_CHUNK", chunk)

        assert not too_deep(data, depth)
        assert depth == 0 or too_deep(data, depth - 1)


@given(st.binary(max_size=60))
def test_no_bytes_make_the_parser_raise(data: bytes) -> None:
    """Whatever the bytes are, the answer is a value or one finding."""
    value, problems = parse(data, ReadOptions())

    assert len(problems) == 1 or not problems
    assert value is None or not problems
