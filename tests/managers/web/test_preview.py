"""The end of a log and the beginning of a download."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from dropflow.api.contents import Download
from managers.web.logs import read_start, tail_of


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
