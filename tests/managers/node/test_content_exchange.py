"""Contents that were fetched are kept for the next view of a session, as long as they are needed."""

import zlib
from pathlib import Path

import pytest

from dropflow.data.workspace import Workspace
from dropflow.engine.api import Handle
from managers.links import TransferResult
from managers.messages import Content
from managers.node.content_exchange import ContentExchange

BODY = b"content" * 1000


def _fetched(contents: ContentExchange, content: Content) -> Handle:
    """Fetch a content whose bytes arrive at once."""
    job = contents.fetch(content, lambda: False)
    pending = next(job)
    pending.sink(0, memoryview(BODY))
    with pytest.raises(StopIteration, match="Handle") as ended:
        job.send(TransferResult(len(BODY), zlib.crc32(BODY)))
    handle: Handle = ended.value.value
    return handle


@pytest.mark.parametrize("kind", ["bytes", "file"])
def test_a_fetched_content_is_not_fetched_again_in_the_next_view(kind: str, tmp_path: Path) -> None:
    """Neither one in memory nor a file; not after its release, and not if its drop runs again."""
    workspace = Workspace(str(tmp_path), "s")
    workspace.prepare()
    contents = ContentExchange("s", workspace)
    handle = Handle(kind=kind, size=len(BODY), checksum=zlib.crc32(BODY), location="" if kind == "bytes" else "x.txt")
    found = {drop: _fetched(contents, Content(drop, handle)) for drop in (1, 2, 3)}
    contents.next_view([2])
    contents.remove_copy(3)

    assert contents.copy(Content(1, handle)) == found[1]
    assert found[1].body == (BODY if kind == "bytes" else b"")
    assert contents.copy(Content(2, handle)) is None
    assert contents.copy(Content(3, handle)) is None
    assert contents.copy(Content(1, handle, producer=4)) is None
