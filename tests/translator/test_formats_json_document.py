"""Parsing of documents: cheap checks come first, and each refusal has a reason."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.nightly import nightly
from translator.formats.json_document import parse
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
    """Every unusable document gives one LG001 with the reason and a hint."""
    value, problems = parse(data, ReadOptions())

    assert value is None
    assert [finding.code for finding in problems] == ["LG001"]
    assert reason in problems[0].text
    assert problems[0].hint


def test_a_syntax_error_is_placed_by_line_and_column() -> None:
    """The text has the line and column at which the parser stopped."""
    _, problems = parse(b'{\n  "a": 1,\n  "b": ?\n}', ReadOptions())

    assert "line 3, column 8" in problems[0].text


def test_a_byte_order_mark_is_accepted() -> None:
    """A document that starts with a UTF-8 byte order mark is read."""
    assert parse(b'\xef\xbb\xbf{"a": 1}', ReadOptions()).value == {"a": 1}


def test_the_size_is_checked_before_parsing() -> None:
    """A document above the limit is refused without being parsed, also if it is not JSON."""
    _, problems = parse(b"x" * 100, ReadOptions(max_bytes=99))

    assert "has 100 bytes" in problems[0].text


@pytest.mark.slow
@pytest.mark.parametrize("piece", [b"[", b'"', *nightly(b"{", b'{"a":', b"\\", b" ")], ids=repr)
def test_two_hundred_megabytes_of_garbage_need_little_memory(piece: bytes) -> None:
    """A huge file of garbage is refused with less than 64 MB of memory besides its own bytes."""
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


@given(st.binary(max_size=60))
def test_random_bytes_never_raise(data: bytes) -> None:
    """For any bytes, the result is a value or one finding."""
    value, problems = parse(data, ReadOptions())

    assert len(problems) == 1 or not problems
    assert value is None or not problems
