"""The records in which contents of many drops are sent."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.api.contents import (
    ContentBegin,
    ContentEnd,
    ContentError,
    ContentPiece,
    ContentRecord,
    ContentUnchanged,
    read_records,
    write_records,
)
from dropflow.api.error_body import ErrorBody
from dropflow.errors import ProtocolError

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


@given(records=RECORDS, size=st.integers(1, 50) | st.integers(1000, 100_000))
def test_records_come_as_they_were_sent(records: list[ContentRecord], size: int) -> None:
    """The records do not depend on the chunks in which their bytes arrive; only pieces may be divided."""
    data = b"".join(write_records(records))
    chunks = (data[at : at + size] for at in range(0, len(data), size))

    assert _joined(read_records(chunks)) == _joined(records)


@pytest.mark.parametrize(
    "data", [b"\x01", b"\xff\xff\xff\xff", b"\x01\x00\x00\x00\xc1", b"\x05\x00\x00\x00abc", bytes(8)]
)
def test_other_bytes_are_refused(data: bytes) -> None:
    """Bytes that are not a record, or are cut off, are an error."""
    with pytest.raises(ProtocolError, match=r"record|contents"):
        list(read_records([data]))
