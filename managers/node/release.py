"""Removal of results of a session that is FINISHED, when a client needs them no more."""

from collections.abc import Sequence
from pathlib import Path

from dropflow.data.file_writer import remove_part
from dropflow.engine.api import Handle
from dropflow.errors import ConflictError
from dropflow.states import SessionState
from managers.node.copy_records import CopyRecords
from managers.node.finished_sessions import DamagedSession, FinishedSession
from managers.node.released_contents import ReleasedContents
from managers.node.served_copies import served_copies
from managers.node.session_queries import NodeSession

__all__ = ["release_contents"]


def release_contents(found: NodeSession, rows: Sequence[int]) -> None:
    """Remove results of a session, and copies of those of other nodes, by the rows of their drops in the whole graph.

    Rows that have neither here are left out, and so are contents outside of the directory of the session.

    Raises
    ------
    ConflictError
        The session is not FINISHED.
    StorageError
        The directory cannot be written.
    """
    if isinstance(found, DamagedSession) or found.state is not SessionState.FINISHED:
        raise ConflictError(
            f"session {found.name!r} is {found.state.name}, and not FINISHED: its results are not released"
        )
    piece, directory = found.piece, found.directory.path
    local = {row: here for row in rows if (here := piece.local(row)) is not None and piece.is_own[here]}
    contents: dict[int, Handle | None] = found.session.call(
        lambda live: {row: live.content(here) for row, here in local.items()}
    )
    own = {row: content for row, content in contents.items() if content is not None and _is_inside(content, directory)}
    if own:
        # Recorded first: if this process ends in between, the files go with the session, and are not results.
        ReleasedContents(directory, found.epoch).add(own)
        forgotten = {local[row] for row in own}
        if isinstance(found, FinishedSession):
            found.forget(forgotten)
        else:
            found.session.call(lambda live: live.handover.forget(forgotten))
    for content in own.values():
        remove_part(content.location)
    copies = served_copies(found)
    for copy in (copies[row].handle for row in rows if row in copies):
        if _is_inside(copy, directory):
            CopyRecords(directory).forget(copy.location)
            remove_part(copy.location)


def _is_inside(content: Handle, directory: Path) -> bool:
    return content.kind in ("file", "directory") and Path(content.location).is_relative_to(directory)
