"""What the workers of an engine have of the contents of a session, and what they remove to make room. Does no I/O."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

__all__ = ["HeldContents"]


@dataclass
class _Held:
    path: str
    size: int
    used_by: set[int] = field(default_factory=set)
    """Batches, which need it until they have ended."""


class HeldContents:
    """The contents on each worker, by their identity (`dropflow.engine.external.listed_content.identity_of`).

    A content is sent to a worker once, as long as it is held there. What no batch uses is removed if there is no room
    for another one, the one that was used longest ago first.
    """

    def __init__(self) -> None:
        self._rooms: Mapping[str, int] = {}
        self._of_worker: dict[str, dict[int, _Held]] = {}
        self._of_batch: dict[int, list[_Held]] = {}
        """What each batch uses, so that its end does not go through all that is held."""

    def set_workers(self, rooms: Mapping[str, int]) -> None:
        """Note which workers there are, and how many bytes each may hold. What others have is forgotten."""
        self._rooms = dict(rooms)
        self._of_worker = {worker: self._of_worker.get(worker, {}) for worker in rooms}

    def bytes_on(self, worker: str, identities: Iterable[int]) -> int:
        """Return how many bytes of some contents a worker has."""
        held = self._of_worker.get(worker, {})
        return sum(held[one].size for one in identities if one in held)

    def use(self, worker: str, identity: int, batch: int) -> str:
        """Return the path of a content on a worker, and note that a batch uses it; empty if it is not there."""
        held = self._of_worker.get(worker, {})
        found = held.pop(identity, None)
        if found is None:
            return ""
        held[identity] = found  # the last one now
        self._note_use(found, batch)
        return found.path

    def add(self, worker: str, identity: int, path: str, size: int, batch: int = 0) -> str:
        """Note a content on a worker, which a batch uses; return the path of an older one to remove, if there is one.

        A batch of 0 is none.
        """
        if worker not in self._of_worker:
            return ""
        before = self._of_worker[worker].pop(identity, None)
        held = self._of_worker[worker][identity] = _Held(path, size)
        if batch:
            self._note_use(held, batch)
        return before.path if before is not None and before.path != path else ""

    def make_room(self, worker: str, size: int) -> list[str]:
        """Forget contents that no batch uses until there is room for `size` more bytes; return their paths.

        If those that are used leave no room, the worker gets more than it should.
        """
        held = self._of_worker.get(worker, {})
        excess = sum(one.size for one in held.values()) + size - self._rooms.get(worker, 0)
        removed = []
        for identity, one in tuple(held.items()):
            if excess <= 0:
                break
            if not one.used_by:
                excess -= one.size
                removed.append(one.path)
                del held[identity]
        return removed

    def end(self, batch: int) -> None:
        """Note that a batch uses nothing any more."""
        for held in self._of_batch.pop(batch, ()):
            held.used_by.discard(batch)

    def _note_use(self, held: _Held, batch: int) -> None:
        held.used_by.add(batch)
        self._of_batch.setdefault(batch, []).append(held)
