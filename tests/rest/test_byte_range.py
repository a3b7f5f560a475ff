"""Parts of contents, as HTTP asks for them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.api.contents import DataQuery, PartOfContent, read_content_range, requested_part
from dropflow.errors import RangeError

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
