"""Offers of streams: what other nodes can read, from the first bytes to the end."""

from pathlib import Path

import msgspec
import pytest

from dropflow.clock import SystemClock
from dropflow.data.file import FileWriter
from dropflow.data.streams import StreamedWriter, StreamReader
from dropflow.engine.api import Handle
from dropflow.errors import GoneError, StorageError
from managers.node.streams import StreamOffer

Made = tuple[StreamedWriter, StreamOffer]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Return a stream with four bytes, and its offer."""
    opened: list[Handle] = []
    part = StreamedWriter(
        FileWriter(str(tmp_path / "part")), str(tmp_path / "s"), opened.append, lambda: None, SystemClock()
    )
    part.write(b"0123")
    return part, StreamOffer(StreamReader(opened[0].location))


def test_an_open_stream_has_no_size_and_is_read_to_its_present_end(made: Made) -> None:
    """A read beyond the present end returns nothing until the content grows."""
    part, offer = made
    before = (offer.size, offer.read(2, 10), offer.read(4, 10))
    part.write(b"45")
    after = offer.read(4, 10)
    size = part.finish().size
    offer_size = offer.size
    offer.end()

    assert (before, after) == ((None, b"23", b""), b"45")
    assert offer_size == size == 6


def test_a_complete_stream_is_read_from_its_final_path(made: Made, tmp_path: Path) -> None:
    """It can be read after its commit under another name, and after the data plane has closed it."""
    part, offer = made
    handle = part.finish()
    final = Path(handle.location).rename(tmp_path / "final")
    offer.complete(_moved(handle, final))
    offer.complete(_moved(handle, final))
    found = []
    for _ in range(3):
        found.append((offer.size, offer.read(1, 2)))
        held = offer._file
        offer.close()
        assert held >= 0 > offer._file
    offer.end()

    assert found == [(4, b"12")] * 3
    assert offer.reader.closed


def test_an_open_reader_continues_after_the_commit(made: Made, tmp_path: Path) -> None:
    """It reads the same file, even if another file gets the name of the content."""
    part, offer = made
    offer.read(0, 2)
    handle = part.finish()
    final = Path(handle.location).rename(tmp_path / "final")
    offer.complete(_moved(handle, final))
    final.unlink()
    final.write_bytes(b"else")
    read = offer.read(2, 2)
    offer.end()

    assert read == b"23"


def test_a_lost_file_and_an_ended_offer_are_errors(made: Made, tmp_path: Path) -> None:
    """A removed file cannot be read; an ended offer is gone, complete or not, and ends only once."""
    part, offer = made
    offer.complete(_moved(part.finish(), tmp_path / "nowhere"))
    with pytest.raises(StorageError, match="nowhere"):
        offer.read(0, 1)
    offer.end()
    offer.end()
    offer.complete(_moved(part.finish(), tmp_path / "part"))
    with pytest.raises(GoneError, match="written"):
        offer.read(0, 1)


def _moved(handle: Handle, path: Path) -> Handle:
    return msgspec.structs.replace(handle, location=str(path))
