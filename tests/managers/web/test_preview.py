"""Previews: the end of a log and the beginning of a content."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.rest.schema import Download
from managers.web.preview import picture_type, preview_of, read_start, tail_of


class Source:
    """Content in chunks that records how much of it was read and whether it was closed."""

    def __init__(self, content: bytes, chunk: int = 1000) -> None:
        self.taken = 0
        self.closed = False
        self.download = Download(name="x", content_type="x", size=len(content), chunks=self._chunks(content, chunk))

    def _chunks(self, content: bytes, chunk: int) -> Iterator[bytes]:
        try:
            for start in range(0, len(content), chunk):
                self.taken += len(content[start : start + chunk])
                yield content[start : start + chunk]
        finally:
            self.closed = True


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=300), st.integers(1, 50))
def test_text_is_shown_as_it_is(text: str, chunk: int) -> None:
    """UTF-8 without control characters is shown unchanged, with any size of chunks."""
    found = preview_of(Source(f"x{text}".encode(), chunk).download)

    assert (found.kind, found.text, found.is_cut) == ("text", f"x{text}", False)


@given(st.binary(max_size=2000), st.integers(1, 700))
def test_any_content_has_a_preview(content: bytes, chunk: int) -> None:
    """No content raises an error, and its source is closed."""
    source = Source(content, chunk)

    assert preview_of(source.download).size == len(content)
    assert source.closed or not content


@pytest.mark.parametrize("letter", ["x", "é", "😀"])
def test_long_text_is_cut_between_characters(letter: str) -> None:
    """The first 16 KiB of a large text are shown, and little more than that is read."""
    content = ("x" + letter * 1_000_000).encode()
    source = Source(content)
    found = preview_of(source.download)

    assert found.kind == "text"
    assert found.is_cut
    assert content.startswith(found.text.encode())
    assert 16 * 1024 - 4 < len(found.text.encode()) <= 16 * 1024
    assert source.taken < 20_000
    assert source.closed


def test_bytes_are_dumped_with_their_places() -> None:
    """Binary content is shown in hexadecimal, 16 bytes in a row, with offsets and printable characters."""
    found = preview_of(Source(b"\x00AB~\xff" + bytes(20)).download)

    assert found.kind == "dump"
    assert found.text.splitlines()[0] == "000000  00 41 42 7e ff" + " 00" * 11 + "  .AB~............"
    assert found.text.splitlines()[1].startswith("000010  00 00")


def test_a_fits_file_shows_its_header() -> None:
    """The cards of the primary header are shown up to END, without the data."""
    cards = ["SIMPLE  =                    T", "NAXIS   =                    0", "END"]
    content = "".join(card.ljust(80) for card in cards).encode().ljust(2880) + bytes(2880)

    assert preview_of(Source(content).download).text.splitlines() == cards


def test_only_safe_pictures_are_pictures() -> None:
    """PNG, JPEG, GIF and WebP are drawn; SVG, which may contain scripts, and HTML are text."""
    assert picture_type(b"\x89PNG\r\n\x1a\n...") == "image/png"
    assert picture_type(b"\xff\xd8\xff\xe0") == "image/jpeg"
    assert picture_type(b"GIF89a") == "image/gif"
    assert picture_type(b"RIFF\x00\n\x00\x00WEBP") == "image/webp"
    assert preview_of(Source(b"<svg xmlns='http://www.w3.org/2000/svg'/>").download).kind == "text"
    assert preview_of(Source(b"").download).kind == "nothing"


@given(st.lists(st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=40), max_size=20), st.integers(1, 99))
def test_a_short_log_is_shown_whole(lines: list[str], chunk: int) -> None:
    """A log within the limit is shown unchanged."""
    text = "\n".join(lines)
    found = tail_of(Source(text.encode(), chunk).download)

    assert (found.text, found.is_cut, found.is_open) == (text, False, False)


def test_of_a_long_log_the_last_lines_are_shown() -> None:
    """The shown part begins with a line."""
    lines = [f"line {number}" for number in range(50_000)]
    found = tail_of(Source("\n".join(lines).encode()).download)
    shown = found.text.split("\n")

    assert found.is_cut
    assert shown == lines[-len(shown) :]
    assert 60_000 < len(found.text) <= 65_536


def test_only_a_part_of_a_huge_log_is_read() -> None:
    """Reading stops after 16 MiB, and the preview records that."""
    source = Source(b"x" * (20 * 1024 * 1024), 1024 * 1024)

    assert tail_of(source.download).is_open
    assert source.taken <= 17 * 1024 * 1024
    assert source.closed


@given(st.binary(max_size=500), st.integers(0, 600), st.integers(1, 100))
def test_the_start_is_exact(content: bytes, limit: int, chunk: int) -> None:
    """The start has as many bytes as the limit or the content, whichever is smaller."""
    assert read_start(Source(content, chunk).download, limit) == content[:limit]
