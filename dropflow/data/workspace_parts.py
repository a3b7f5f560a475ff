"""Temporary places in the workspace of a session for contents that other hosts have written."""

from dropflow.data.file_writer import remove_part
from dropflow.data.special_files import refuse_special
from dropflow.data.workspace import Workspace

__all__ = ["WorkspaceParts"]


class WorkspaceParts:
    """`dropflow.engine.external.fetched_parts.FetchedParts` of a session.

    Parameters
    ----------
    workspace : Workspace
        Of the session.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def path(self, drop: int, attempt: int, number: int, final: str) -> str:
        """Return a new temporary path on the file system of `final`, or in the session directory if that is empty.

        Raises
        ------
        BadFileError
            There is a FIFO, a socket or a device at `final`.
        StorageError
            Nothing can be written there.
        """
        if final:
            refuse_special(final)
        if not final or self._workspace.is_inside(final):
            return self._workspace.part_name(drop, attempt, f"fetched-{number}")
        return self._workspace.part_beside(final)

    def remove(self, path: str) -> None:
        """Remove what was written there; never raises."""
        remove_part(path)
