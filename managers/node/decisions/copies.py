"""Copies of contents on other members of a session, so that the loss of a node does not lose them: pure decisions.

The owner of a completed data drop asks another member to *hold a copy* of its content: `ContentCopies.ask`. The member
fetches the content as consumers do, compares its checksum, and answers; then the copy is *safe*. What members hold is
part of their reports when the view of the session ends. A drop of a lost node, or of one that leaves, goes to a member
that has a copy, and does not run again (`managers.recovery.replan`): the copy becomes the content.

To move contents away from a node before it leaves::

    actions = member.copies.ask({"n2": [7, 8], "n3": [9]})
    ...                                     # after each event of the session:
    if not member.copies.waits_for([7, 8, 9]):
        failed = member.copies.unsafe([7, 8, 9])

A file or directory outside of the session directory may be on a file system that other nodes see. Two members get its
path, and look whether it is there when the view ends; then it counts as copied, and nothing is moved.

Rows are those of the whole graph. Everything here is per session and member, and survives changes of the view. If a
copy is not safe when a view ends, a remaining member is asked for it in the next view.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from dropflow.execution.content_location import Handle
from dropflow.formatting import plural
from managers.messages import Content, CopiesTaken, CopyContents, CopyMessage, ReleaseCopies
from managers.node.decisions.events import (
    AddNote,
    CopyAction,
    CopyWritten,
    DiscardCopies,
    OfferCopies,
    OffersRefused,
    TakeCopies,
)
from managers.recovery.records import SharedFile, View, ViewDecision, pack_column, unpack_column
from managers.recovery.vote import SendToPeer

if TYPE_CHECKING:
    from managers.node.hosted_session import HostedSession

Answers = dict[str, tuple[list[int], dict[int, str]]]
"""Rows that are copied, and by row why the others are not, by owner."""
_NOTES = 2
"""Number of members that know the file of a content, so that one is left after a loss."""
_BATCH = 1000
"""Most contents in one message."""

# The copies of contents that one member of a session holds for their owners: part of `ContentCopies`.


class HeldCopy(msgspec.Struct, frozen=True):
    """A copy that this member holds: the content, its owner, and how many copies the owner wants.

    With a `stamp`, it is the owner's own file, on a file system that this member sees, too.
    """

    handle: Handle
    owner: str
    count: int
    stamp: tuple[int, ...] = ()


class HeldCopies:
    """Copies that are here, and those that are being made. Methods return the copies to be removed from the disk."""

    def __init__(self) -> None:
        self.copies: dict[int, HeldCopy] = {}
        """Copies by the row of a drop of another member."""
        self._taking: dict[int, tuple[str, int, Content]] = {}
        """Owner, count and content of copies that are being made, by row."""
        self._noted: dict[int, HeldCopy] = {}
        """Files of other members that this one may see, by row."""
        self._seen: frozenset[int] = frozenset()
        """Rows of shared files that were there when the view ended."""

    def request(
        self, owner: str, contents: Sequence[Content], counts: Sequence[int]
    ) -> tuple[list[int], list[Content]]:
        """Note the copies that an owner asks for; return rows with a copy from an earlier view, and contents to copy.

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
        """Note copies that were made, and answer their owners; copies of an earlier view are not wanted."""
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
        """Stop holding these copies of an owner, and return them."""
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
        """Go on with the owners of a new view; return also the copies of drops that this node now owns."""
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


class ContentCopies:
    """The copies that one member of a session holds, and the copies of its own contents that other members hold.

    Methods return the actions to carry out, in order.

    Parameters
    ----------
    node, session, epoch :
        This member, the session and its deployment.
    """

    def __init__(self, node: str, session: str, epoch: int) -> None:
        self.safe: dict[int, set[str]] = {}
        """Members that hold a copy of the content of an own drop, by row."""
        self.failed: dict[int, dict[str, str]] = {}
        """Members that cannot hold a copy of an own drop in this view, and why, by row."""
        self._node = node
        self._session = session
        self._epoch = epoch
        self._view = 0
        self._members: tuple[str, ...] = ()
        self._draining: frozenset[str] = frozenset()
        """Members that are about to leave."""
        self._hosted: Any = None
        self.is_stopped = True
        """Whether the view changes, or the session has not begun in it."""
        self._asked: dict[int, set[str]] = {}
        """Members that were asked about an own drop and have not answered, by row."""
        self._told: dict[int, set[str]] = {}
        """Members that know the file of an own drop without wanted copies, by row."""
        self._count: dict[int, int] = {}
        """Number of wanted copies of an own drop, by row; 0 if other members may see its file."""
        self._unsent: dict[str, set[int]] = {}
        """Rows to ask for as soon as the session runs, by member."""
        self._here = HeldCopies()
        self._early: list[tuple[str, CopyMessage]] = []
        """Messages of later views, and releases while the session is stopped."""
        self._actions: list[CopyAction] = []

    # The owner's side.

    def ask(self, rows: Mapping[str, Iterable[int]]) -> list[CopyAction]:
        """Ask members to hold copies of the contents of own completed drops."""
        for member, wanted in rows.items():
            for row in wanted:
                has = self.safe.get(row, set()) | self._asked.get(row, set())
                if member == self._node or member in has:
                    continue
                self._asked.setdefault(row, set()).add(member)
                self._count[row] = max(self._count.get(row, 0), len(has) + 1)
                self._unsent.setdefault(member, set()).add(row)
        return self._finish()

    def want(self, counts: Mapping[int, int]) -> list[CopyAction]:
        """Request these numbers of copies of own contents on any members, or on all members if there are too few."""
        for row, count in counts.items():
            self._count[row] = max(self._count.get(row, 0), count)
            self._fill(row)
        return self._finish()

    def waits_for(self, rows: Iterable[int] | None = None) -> bool:
        """Return whether a member has not answered yet about one of these rows; without `rows`, about any row."""
        return bool(self._asked) if rows is None else any(row in self._asked for row in rows)

    @property
    def waiting(self) -> str:
        """The reason why the end of the session waits, for users; empty if it does not wait."""
        return f"waiting for copies of {plural(len(self._asked), 'content')}" if self._asked else ""

    def finished(self) -> list[CopyAction]:
        """Return notes about the copies that are wanted and cannot be made."""
        missing = [row for row, count in self._count.items() if len(self.safe.get(row, ())) < count]
        if missing:
            row = min(missing)
            reasons = self.failed.get(row, {})
            why = (
                "; ".join(f"{node}: {text}" for node, text in reasons.items())
                or f"it has {plural(len(self._members), 'node')}"
            )
            text = f"node {self._node}: {plural(len(missing), 'content')} of this session have too few copies ({why})"
            self._actions.append(AddNote(self._hosted, text))
        return self._finish()

    def unsafe(self, rows: Iterable[int]) -> list[int]:
        """Return which of these rows have no copy on any member."""
        return [row for row in rows if not self.safe.get(row)]

    def released(self, rows: Collection[int]) -> list[CopyAction]:
        """Request the removal of copies of contents that were released, or whose drops run again."""
        holders: dict[str, list[int]] = {}
        for row in rows:
            for member in self._forget(row):
                holders.setdefault(member, []).append(row)
        for member, released in holders.items():
            self._send(member, ReleaseCopies(self._session, self._epoch, self._view, _column(released)))
        return self._finish()

    def refused(self, event: OffersRefused) -> list[CopyAction]:
        """Note that contents are gone which a member was to be asked for."""
        if event.view == self._view:
            for row in event.failed:
                self._forget(row)
        return self._finish()

    # Messages.

    def receive(self, peer: str, message: CopyMessage) -> list[CopyAction]:
        """Take in a message of another member."""
        self._dispatch(peer, message)
        return self._finish()

    def _dispatch(self, peer: str, message: CopyMessage) -> None:
        match message:
            case ReleaseCopies():
                # A release by a member that is still the owner is valid in later views, too.
                if message.view > self._view or self.is_stopped:
                    self._early.append((peer, message))
                else:
                    self._discard(self._here.release(peer, message.rows()))
            case _ if message.view > self._view:
                self._early.append((peer, message))
            case CopyContents() if message.view == self._view:
                if self.is_stopped:
                    self._early.append((peer, message))
                else:
                    self._on_request(peer, message)
            case CopiesTaken() if message.view == self._view:
                self._on_taken(peer, message)

    def written(self, event: CopyWritten) -> list[CopyAction]:
        """Note copies that were made here, and answer their owners."""
        is_current = event.view == self._view
        answers, unwanted = self._here.written(event.taken, event.failed if is_current else {}, is_current=is_current)
        self._discard(unwanted)
        for owner, (rows, failed) in answers.items():
            self._send(owner, CopiesTaken(self._session, self._epoch, self._view, _column(rows), failed))
        return self._finish()

    # Views.

    def run(self, hosted: "HostedSession", view: View) -> list[CopyAction]:
        """Note that the session runs in this view on this node."""
        self._view = view.number
        self._hosted, self._members = hosted, tuple(place.node for place in view.members)
        self._draining = frozenset(view.draining)
        self.is_stopped = False
        early, self._early = self._early, []
        for peer, message in early:
            self._dispatch(peer, message)
        for row in self._count:
            self._fill(row)
        return self._finish()

    def stop(self) -> None:
        """Keep all copies and ask for none, since the view changes."""
        self.is_stopped = True

    @property
    def held(self) -> Mapping[int, HeldCopy]:
        """The copies here, by the rows of drops of other members."""
        return self._here.copies

    def shared_files(self) -> dict[int, SharedFile]:
        """Return the files of other members that may be seen from here, by row; to be looked at before `report`."""
        return self._here.shared_files()

    def report(self, seen: Iterable[int]) -> bytes:
        """Return the rows of the contents that are here for `MemberReport`, given the shared files that are there."""
        rows = self._here.report(seen)
        return pack_column(np.array(rows, dtype=np.int32)) if rows else b""

    def next_view(self, decision: ViewDecision) -> dict[int, Handle]:
        """Go on in the next view; return the copies that become contents, since their drops are now of this member.

        The actions that follow come from `run`.
        """
        self._view = decision.view.number
        self._members = tuple(place.node for place in decision.view.members)
        members = set(self._members)
        reset = set(unpack_column(decision.reset, np.int32).tolist())
        self.failed, self._unsent, self._asked = {}, {}, {}
        for row in [row for row in self._count if row in reset]:
            self._forget(row)
        self.safe = {row: left for row, holders in self.safe.items() if (left := holders & members)}
        self._told = {row: left for row, informed in self._told.items() if (left := informed & members)}
        adopted, unwanted = self._here.next_view(self._node, _owners(self._here.rows, decision), reset)
        self._discard(unwanted)
        self._count.update({row: copy.count for row, copy in adopted.items()})
        announced: dict[str, list[int]] = {}
        for row, copy in self.held.items():
            announced.setdefault(copy.owner, []).append(row)
        for peer, rows in announced.items():
            self._send(peer, CopiesTaken(self._session, self._epoch, self._view, _column(rows)))
        return {row: copy.handle for row, copy in adopted.items()}

    # What follows.

    def _fill(self, row: int) -> None:
        """Ask more members for copies of a content, if there are too few and other members.

        If no copies are wanted, two members get the path, since they may see the same file.
        """
        table = self._asked if self._count[row] else self._told
        has = self.safe.get(row, set()) | table.get(row, set())
        missing = (self._count[row] or _NOTES) - len(has)
        if missing <= 0 or self._node not in self._members:
            return
        # The next members in their order hold the copies. Each row begins with a different one of them.
        others = [name for name in self._members if name != self._node]
        start = self._members.index(self._node) + row
        order = [others[(start + step) % len(others)] for step in range(len(others))]
        order.sort(key=self._draining.__contains__)  # those that stay first
        for member in order:
            if missing and member not in has and member not in self.failed.get(row, {}):
                table.setdefault(row, set()).add(member)
                self._unsent.setdefault(member, set()).add(row)
                missing -= 1

    def _forget(self, row: int) -> set[str]:
        """Want no copies of a content; return the members that may have one."""
        self._count.pop(row, None)
        self.failed.pop(row, None)
        for rows in self._unsent.values():
            rows.discard(row)
        return self.safe.pop(row, set()) | self._asked.pop(row, set()) | self._told.pop(row, set())

    def _on_request(self, peer: str, message: CopyContents) -> None:
        here, new = self._here.request(peer, message.contents, message.counts)
        if here:
            self._send(peer, CopiesTaken(self._session, self._epoch, self._view, _column(here)))
        if new:
            self._actions.append(TakeCopies(self._session, self._epoch, self._view, self._hosted, peer, tuple(new)))

    def _on_taken(self, peer: str, message: CopiesTaken) -> None:
        unwanted = []
        for row in message.rows():
            _answered(self._asked, row, peer)
            holders = self.safe.get(row, set())
            # A new owner may have asked others before a member answered that it has a copy from an earlier view.
            if peer in holders or len(holders) < self._count.get(row, 0):
                self.safe[row] = holders | {peer}
            else:
                unwanted.append(row)
        if unwanted:
            self._send(peer, ReleaseCopies(self._session, self._epoch, self._view, _column(unwanted)))
        for row, why in message.failed.items():
            _answered(self._asked, row, peer)
            if row in self._count:
                self.failed.setdefault(row, {})[peer] = why
                self._fill(row)

    def _discard(self, copies: Sequence[Handle]) -> None:
        if copies:
            self._actions.append(DiscardCopies(self._hosted, tuple(copies)))

    def _send(self, peer: str, message: CopyMessage) -> None:
        self._actions.append(SendToPeer(peer, message))

    def _finish(self) -> list[CopyAction]:
        """Return the actions, with requests for copies if the session runs."""
        if not self.is_stopped:
            for member, wanted in self._unsent.items():
                rows = sorted(wanted)
                for start in range(0, len(rows), _BATCH):
                    counts = {row: self._count[row] for row in rows[start : start + _BATCH]}
                    offer = OfferCopies(self._session, self._epoch, self._view, self._hosted, member, counts)
                    self._actions.append(offer)
            self._unsent = {}
        actions, self._actions = self._actions, []
        return actions


def _answered(unanswered: dict[int, set[str]], row: int, member: str) -> None:
    left = unanswered.get(row, set()) - {member}
    if left:
        unanswered[row] = left
    else:
        unanswered.pop(row, None)


def _owners(rows: Collection[int], decision: ViewDecision) -> dict[int, str]:
    """Return the nodes of drops in a view."""
    if not rows:
        return {}
    placement = unpack_column(decision.placement, np.uint16)[list(rows)].tolist()
    return {row: decision.places[place] for row, place in zip(rows, placement, strict=True)}


def _column(rows: Iterable[int]) -> bytes:
    return np.array(list(rows), dtype="<i4").tobytes()
