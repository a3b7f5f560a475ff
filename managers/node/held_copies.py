"""The copies of contents that one member of a session holds for their owners: part of `ContentCopies`."""

from collections.abc import Collection, Iterable, Mapping

import msgspec

from dropflow.engine.api import Handle

__all__ = ["HeldCopies", "HeldCopy"]

Answers = dict[str, tuple[list[int], dict[int, str]]]
"""By owner: rows that are copied, and why others are not."""


class HeldCopy(msgspec.Struct, frozen=True):
    """A copy that this member holds: the content, its owner, and how many copies the owner wants."""

    handle: Handle
    owner: str
    count: int


class HeldCopies:
    """Copies that are here, and those that are being made. Methods return the copies to be removed from the disk."""

    def __init__(self) -> None:
        self.copies: dict[int, HeldCopy] = {}
        """By row of a drop of another member."""
        self._taking: dict[int, tuple[str, int]] = {}
        """By row: owner and count of copies that are being made."""

    def request(self, owner: str, counts: Mapping[int, int]) -> list[int]:
        """Note what an owner asks for; return the rows that are here already, from an earlier view."""
        here = [row for row in counts if row in self.copies]
        for row, count in counts.items():
            if row in self.copies:
                self.copies[row] = msgspec.structs.replace(self.copies[row], owner=owner, count=count)
            else:
                self._taking[row] = (owner, count)
        return here

    def written(
        self, taken: Mapping[int, Handle], failed: Mapping[int, str], *, is_current: bool
    ) -> tuple[Answers, list[Handle]]:
        """Note copies that were made, and answer their owners; those of an earlier view are not wanted."""
        answers: Answers = {}
        unwanted = []
        for row, handle in taken.items():
            if not is_current or row not in self._taking:
                unwanted.append(handle)
                continue
            owner, count = self._taking.pop(row)
            if row in self.copies:
                unwanted.append(self.copies[row].handle)
            self.copies[row] = HeldCopy(handle, owner, count)
            answers.setdefault(owner, ([], {}))[0].append(row)
        for row, why in failed.items():
            if row in self._taking:
                owner, _ = self._taking.pop(row)
                answers.setdefault(owner, ([], {}))[1][row] = why
        return answers, unwanted

    def release(self, owner: str, rows: Iterable[int]) -> list[Handle]:
        """Hold these copies of an owner no more."""
        unwanted = []
        for row in rows:
            if self._taking.get(row, ("", 0))[0] == owner:
                del self._taking[row]
            if row in self.copies and self.copies[row].owner == owner:
                unwanted.append(self.copies.pop(row).handle)
        return unwanted

    def next_view(
        self, node: str, owners: Mapping[int, str], reset: Collection[int]
    ) -> tuple[dict[int, HeldCopy], list[Handle]]:
        """Go on with the owners of a new view; return the copies of drops that are now of this node, too."""
        self._taking.clear()
        unwanted = [self.copies.pop(row).handle for row in tuple(self.copies) if row in reset]
        adopted = {row: self.copies.pop(row) for row in tuple(self.copies) if owners[row] == node}
        for row, copy in self.copies.items():
            self.copies[row] = msgspec.structs.replace(copy, owner=owners[row])
        return adopted, unwanted
