"""Inputs that an attempt reads in the directories of other nodes, which those nodes may remove while it runs.

A node that is started again, or without which the session went on, removes its session directory: first it renames
the directory, then it removes the files in it. So if the path of an input is the same file or directory at the end of
an attempt as at its beginning, the input was whole meanwhile.
"""

import os
from collections.abc import Iterable

from dropflow.data.workspace import Workspace
from dropflow.errors import InputLostError
from dropflow.execution.tasks import Input

_KINDS = ("file", "directory", "shm")
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_MOST_OPEN = 256
"""Most inputs of one attempt that are held open. For further ones, a new file with an old inode is not noticed."""


class BorrowedInputs:
    """The inputs of one attempt that are in directories of its session on other nodes.

    They are held open, so that no new file gets the inode of a removed one.

    Parameters
    ----------
    inputs : iterable of Input
        All inputs of the attempt, which is about to begin.
    workspace : Workspace
        The directories of the session here.

    Raises
    ------
    InputLostError
        An input does not exist.
    """

    __slots__ = ("_found", "_open")

    def __init__(self, inputs: Iterable[Input], workspace: Workspace) -> None:
        self._found: dict[str, tuple[str, os.stat_result]] = {}
        self._open: list[int] = []
        for source in inputs:
            handle = source.handle
            if handle is not None and handle.kind in _KINDS and workspace.is_on_other_node(handle.location):
                self._add(source.oid, handle.location)

    def refuse_lost(self) -> None:
        """Raise unless all inputs still exist.

        Raises
        ------
        InputLostError
            An input was removed, or another file is in its place.
        """
        for path, (oid, before) in self._found.items():
            # Opened, because a network file system may answer `stat` from its cache.
            try:
                descriptor = os.open(path, _OPEN)
            except OSError as error:
                raise _lost(oid, path) from error
            try:
                is_same = os.path.samestat(os.fstat(descriptor), before)
            except OSError:
                is_same = False
            finally:
                os.close(descriptor)
            if not is_same:
                raise _lost(oid, path)

    def close(self) -> None:
        """Close them. Idempotent."""
        while self._open:
            os.close(self._open.pop())

    def _add(self, oid: str, path: str) -> None:
        try:
            descriptor = os.open(path, _OPEN)
        except OSError as error:
            self.close()
            raise _lost(oid, path) from error
        self._open.append(descriptor)
        self._found[path] = oid, os.fstat(descriptor)
        if len(self._open) > _MOST_OPEN:
            os.close(self._open.pop())


def _lost(oid: str, path: str) -> InputLostError:
    return InputLostError(
        f"the content of input {oid} was removed at {path} on another node before the attempt ended",
        hint="that node was started again or left the session: the attempt is repeated when the content is there again",
    )
