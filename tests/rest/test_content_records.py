"""The records in which contents of many drops are sent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.errors import ProtocolError
from dropflow.rest.content_records import (
    ContentBegin,
    ContentEnd,
    ContentError,
    ContentPiece,
    ContentRecord,
    ContentUnchanged,
    read_records,
    write_records,
)
from dropflow.rest.error_body import ErrorBody

_ERROR = ErrorBody(code="DF121", kind="GoneError", text="released")
RECORDS = st.lists(
    st.one_of(
        st.builds(ContentBegin, st.integers(0, 999), st.booleans()),
        st.builds(ContentPiece, st.binary(max_size=200)),
        st.builds(ContentEnd, st.just("0" * 32)),
        st.builds(ContentUnchanged, st.integers(0, 999)),
        st.builds(ContentError, st.integers(0, 999), st.just(_ERROR)),
    )
)


@given(records=RECORDS, size=st.integers(1, 50))
def test_records_come_as_they_were_sent(records: list[ContentRecord], size: int) -> None:
    """The records do not depend on the chunks in which their bytes arrive."""
    data = b"".join(write_records(records))
    chunks = (data[at : at + size] for at in range(0, len(data), size))

    assert list(read_records(chunks)) == records


@pytest.mark.parametrize("data", [b"\x01", b"\xff\xff\xff\xff", b"\x01\x00\x00\x00\xc1", b"\x05\x00\x00\x00abc"])
def test_other_bytes_are_refused(data: bytes) -> None:
    """Bytes that are not a record, or are cut off, are an error."""
    with pytest.raises(ProtocolError, match=r"record|contents"):
        list(read_records([data]))
