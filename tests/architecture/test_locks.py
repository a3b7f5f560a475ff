"""Locks in the managers."""

import ast
from collections.abc import Iterator

from tests.architecture.sources import ROOT, files, parsed

_LOCKS = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore"}
_MOST = 9


def _locks() -> Iterator[tuple[str, str]]:
    """Yield place and text of the line of every lock in the managers, with the three lines before it."""
    for path in files("managers"):
        lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in _LOCKS:
                yield f"{path}:{node.lineno}", "\n".join(lines[max(0, node.lineno - 4) : node.lineno])


def test_managers_have_fewer_than_ten_locks() -> None:
    """The state of a manager has one owner, a thread with a queue, so that few locks remain."""
    places = [place for place, _ in _locks()]

    assert len(places) <= _MOST, places


def test_every_lock_has_a_comment() -> None:
    """A comment at each lock has what it guards, and why a queue would not do."""
    assert [place for place, lines in _locks() if "#" not in lines] == []
