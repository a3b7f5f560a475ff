"""Contents of many drops in one answer: records, and ranges of bytes."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.api.contents_answer import (
    ContentBegin,
    ContentEnd,
    ContentError,
    ContentPiece,
    ContentRecord,
    ContentUnchanged,
    DataQuery,
    PartOfContent,
    read_content_range,
    read_records,
    requested_part,
    write_records,
)
from dropflow.api.drop_records import ResultInfo
from dropflow.api.error_body import ErrorBody
from dropflow.api.requests import ResultList, ResultsQuery
from dropflow.errors import ProtocolError, RangeError

_ERROR = ErrorBody(code="DF121", kind="GoneError", text="released")
RECORDS = st.lists(
    st.one_of(
        st.builds(ContentBegin, st.integers(0, 999), st.booleans(), st.none() | st.integers(0, 2**60), st.none()),
        st.builds(ContentPiece, st.binary(max_size=200) | st.integers(60_000, 70_000).map(bytes)),
        st.builds(ContentEnd, st.integers(0, 2**32 - 1)),
        st.builds(ContentUnchanged, st.integers(0, 999)),
        st.builds(ContentError, st.integers(0, 999), st.just(_ERROR)),
    )
)


def _joined(records: Iterable[ContentRecord]) -> list[ContentRecord]:
    """Return the records with pieces that follow each other as one; empty ones are left out."""
    found: list[ContentRecord] = []
    for record in records:
        data = bytes(record.data) if isinstance(record, ContentPiece) else b""
        if data and found and isinstance(found[-1], ContentPiece):
            found[-1] = ContentPiece(bytes(found[-1].data) + data)
        elif data or not isinstance(record, ContentPiece):
            found.append(ContentPiece(data) if data else record)
    return found


@pytest.mark.slow
@given(records=RECORDS, size=st.integers(1, 50) | st.integers(1000, 100_000))
def test_records_come_as_they_were_sent(records: list[ContentRecord], size: int) -> None:
    """The records do not depend on the chunks in which their bytes arrive; only pieces may be divided."""
    data = b"".join(write_records(records))
    chunks = (data[at : at + size] for at in range(0, len(data), size))

    assert _joined(read_records(chunks)) == _joined(records)


@pytest.mark.parametrize(
    "data",
    [
        b"\x01",
        b"\xff\xff\xff\xff",
        b"\x01\x00\x00\x00\xc1",
        b"\x05\x00\x00\x00abc",
        bytes(8),
        b"\x03\x00\x00\x00\x92\x01\xe0" + b"a piece of -32 bytes, which would not end",
        b"\x05\x00\x00\x00\x93\x04\x00\xa1\xff",
    ],
)
def test_other_bytes_are_refused(data: bytes) -> None:
    """Bytes that are not a record, or are cut off, are an error."""
    with pytest.raises(ProtocolError, match=r"record|contents"):
        list(read_records([data]))


_SORTS = ("", "path", "-path", "name", "-name", "node", "size", "-size")


def _results(sizes: list[int]) -> tuple[ResultInfo, ...]:
    """Return results of two nodes, some of them with equal names and sizes."""
    return tuple(
        ResultInfo(drop=at, oid=f"d_{at}", name=f"d{size % 2}", node="ab"[at % 2], path=f"{size}/{at}", size=size)
        for at, size in enumerate(sizes)
    )


@given(sizes=st.lists(st.integers(0, 9), max_size=8), limit=st.integers(0, 9), before=st.integers(0, 3))
def test_what_is_left_out_is_counted(sizes: list[int], limit: int, before: int) -> None:
    """Numbers and bytes add up to those of all, also of a list that is short already; 0 leaves nothing out."""
    every = _results(sizes)
    found = ResultList(results=every, missing=("b",), more=before, more_size=5 * before)
    found = found.chosen(ResultsQuery(limit=limit))

    assert found.results == every[: limit or None]
    assert len(found.results) + found.more == len(every) + before
    assert sum(result.size for result in found.results) + found.more_size == sum(sizes) + 5 * before
    assert found.missing == ("b",)


@given(
    sizes=st.lists(st.integers(0, 3), max_size=10),
    sort=st.sampled_from(_SORTS),
    text=st.sampled_from(("", "D1", "2/")),
    node=st.sampled_from(("", "a")),
    limit=st.integers(0, 6),
)
def test_the_first_of_each_node_have_the_first_of_all(
    sizes: list[int], sort: str, text: str, node: str, limit: int
) -> None:
    """A manager that merges what its nodes chose has the same as one that chooses from all of their results."""
    every, query = _results(sizes), ResultsQuery(text=text, node=node, sort=sort, limit=limit)
    parts = [ResultList(results=tuple(one for one in every if one.node == name)).chosen(query) for name in "ab"]
    merged = sorted((result for part in parts for result in part.results), key=lambda one: one.drop)
    found = ResultList(
        results=tuple(merged),
        more=sum(part.more for part in parts),
        more_size=sum(part.more_size for part in parts),
    ).chosen(query)

    assert found == ResultList(results=every).chosen(query)
    assert found.chosen(query) == found


_ETAG = '"one"'
_NUMBERS = st.none() | st.integers(0, 12)


@given(content=st.binary(max_size=10), first=_NUMBERS, last=_NUMBERS)
def test_a_range_selects_the_bytes_that_python_selects(content: bytes, first: int | None, last: int | None) -> None:
    """``a-b`` counts from the beginning, with both ends, ``a-`` goes to the end, and ``-n`` is the last n bytes."""
    text = f"bytes={'' if first is None else first}-{'' if last is None else last}"
    if first is None:
        wanted = None if last is None else content[max(len(content) - last, 0) :]
    else:
        wanted = content[first:] if last is None else content[first : last + 1] if last >= first else None
    if wanted == b"":
        with pytest.raises(RangeError, match=f"the content has {len(content)} bytes"):
            requested_part(DataQuery(range=text), len(content), _ETAG)
        return
    part = requested_part(DataQuery(range=text), len(content), _ETAG)
    if part is None:
        assert wanted is None
        return
    assert content[part.first : part.last + 1] == wanted
    assert (part.size, part.whole) == (len(wanted), len(content))
    assert read_content_range(part.header) == part


@pytest.mark.parametrize(
    "text", ["", "bytes=0-1,3-4", "items=0-1", "bytes=x-", "bytes=-", "bytes=5-2", f"bytes={9**30}-"]
)
def test_what_is_not_one_range_of_bytes_is_ignored(text: str) -> None:
    """As HTTP requires: the whole content is always a valid answer."""
    assert requested_part(DataQuery(range=text), 10, _ETAG) is None


@pytest.mark.parametrize(("given_etag", "is_part"), [(_ETAG, True), ("", True), ('"other"', False), ('W/"one"', False)])
def test_another_content_comes_whole(given_etag: str, *, is_part: bool) -> None:
    """With If-Range, a part comes only if the client has the other part of the same content."""
    part = requested_part(DataQuery(range="bytes=4-", if_range=given_etag), 10, _ETAG)

    assert part == (PartOfContent(4, 9, 10) if is_part else None)


def test_a_range_after_the_end_is_refused() -> None:
    """The error has the size, for Content-Range."""
    with pytest.raises(RangeError, match="the content has 10 bytes, and the range begins at byte 10") as caught:
        requested_part(DataQuery(range="bytes=10-"), 10, _ETAG)
    assert caught.value.size == 10
