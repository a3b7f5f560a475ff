"""The copies of contents that one member of a session holds for their owners: part of `ContentCopies`."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from dropflow.engine.api import Handle
from managers.messages import Content
from managers.node.shared_files import SharedFile

__all__ = ["HeldCopies", "HeldCopy"]

Answers = dict[str, tuple[list[int], dict[int, str]]]
"""By owner: rows that are copied, and why others are not."""


class HeldCopy(msgspec.Struct, frozen=True):
    """A copy that this member holds: the content, its owner, and how many copies the owner wants.

    With a `stamp` it is the owner's own file, which this member sees, too.
    """

    handle: Handle
    owner: str
    count: int
    stamp: tuple[int, ...] = ()


class HeldCopies:
    """Copies that are here, and those that are being made. Methods return the copies to be removed from the disk."""

    def __init__(self) -> None:
        self.copies: dict[int, HeldCopy] = {}
        """By row of a drop of another member."""
        self._taking: dict[int, tuple[str, int, Content]] = {}
        """By row: owner, count and content of copies that are being made."""
        self._noted: dict[int, HeldCopy] = {}
        """By row: files of other members that this one may see."""
        self._seen: frozenset[int] = frozenset()
        """Rows of shared files that were there when the view ended."""

    def request(
        self, owner: str, contents: Sequence[Content], counts: Sequence[int]
    ) -> tuple[list[int], list[Content]]:
        """Note what an owner asks for; return the rows that are here from an earlier view, and what is to be copied.

        A count of 0 means that no copy is wanted: the file is only noted, since it may be seen from here.
        """
        here, new = [], []
        for content, count in zip(contents, counts, strict=False):
            row = content.drop
            if not count:
                handle = msgspec.structs.replace(content.handle, final="")
                self._noted[row] = HeldCopy(handle, owner, 0, content.stamp)
            elif row in self.copies:
                self.copies[row] = msgspec.structs.replace(self.copies[row], owner=owner, count=count)
                here.append(row)
            else:
                self._taking[row] = (owner, count, content)
                new.append(content)
        return here, new

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
            owner, count, content = self._taking.pop(row)
            if row in self.copies:
                unwanted.append(self.copies[row].handle)
            is_shared = bool(content.stamp) and handle.location == content.handle.location
            self.copies[row] = HeldCopy(handle, owner, count, content.stamp if is_shared else ())
            answers.setdefault(owner, ([], {}))[0].append(row)
        for row, why in failed.items():
            if row in self._taking:
                owner, _, _ = self._taking.pop(row)
                answers.setdefault(owner, ([], {}))[1][row] = why
        return answers, unwanted

    def release(self, owner: str, rows: Iterable[int]) -> list[Handle]:
        """Hold these copies of an owner no more."""
        unwanted = []
        for row in rows:
            if row in self._taking and self._taking[row][0] == owner:
                del self._taking[row]
            if row in self._noted and self._noted[row].owner == owner:
                del self._noted[row]
            if row in self.copies and self.copies[row].owner == owner:
                unwanted.append(self.copies.pop(row).handle)
        return unwanted

    @property
    def rows(self) -> list[int]:
        """Rows of all copies and notes."""
        return [*self.copies, *(row for row in self._noted if row not in self.copies)]

    def shared_files(self) -> dict[int, SharedFile]:
        """Return the files of other members that may be seen from here, by row."""
        copies = {row: copy for row, copy in self.copies.items() if copy.stamp}
        return {row: SharedFile(copy.handle, copy.stamp) for row, copy in {**self._noted, **copies}.items()}

    def report(self, seen: Iterable[int]) -> list[int]:
        """Return the rows of the contents that are here, given the shared files that are there."""
        self._seen = frozenset(seen)
        return sorted(self._seen.union(row for row, copy in self.copies.items() if not copy.stamp))

    def next_view(
        self, node: str, owners: Mapping[int, str], reset: Collection[int]
    ) -> tuple[dict[int, HeldCopy], list[Handle]]:
        """Go on with the owners of a new view; return the copies of drops that are now of this node, too."""
        self._taking.clear()
        unwanted = [self.copies.pop(row).handle for row in tuple(self.copies) if row in reset]
        adopted: dict[int, HeldCopy] = {}
        for table in (self._noted, self.copies):
            for row, copy in tuple(table.items()):
                if row in reset or owners[row] == node:
                    del table[row]
                else:
                    table[row] = msgspec.structs.replace(copy, owner=owners[row])
                if row not in reset and owners[row] == node and (row in self._seen or not copy.stamp):
                    adopted[row] = copy
        self._seen = frozenset()
        return adopted, unwanted
