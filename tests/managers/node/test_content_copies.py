"""The members of a session that hold copies for each other, with messages in any order and losses at any time."""

import random
from collections import deque

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.engine.api import Handle
from managers.deployment import Place
from managers.messages import Content, CopyContents, CopyMessage
from managers.node.copies import ContentCopies
from managers.node.events import (
    CopyAction,
    CopyWritten,
    DiscardCopies,
    OfferCopies,
    OffersRefused,
    TakeCopies,
)
from managers.recovery.records import View, ViewDecision, pack_column
from managers.recovery.vote import SendToPeer

ROWS = 12


class Session:
    """Members, what they own and have on their disks, and the messages between them."""

    def __init__(self, members: int, chance: random.Random, full: set[str]) -> None:
        self.names = tuple("abcdef"[:members])
        self.chance = chance
        self.full = full
        self.view = View(0, tuple(Place(name, "", 1) for name in self.names))
        self.owner = {row: chance.choice(self.names) for row in range(ROWS)}
        self.copies = {name: ContentCopies(name, "s", 1) for name in self.names}
        self.contents: dict[int, int] = {}
        """How many copies are wanted of each content that is there."""
        self.completed: set[int] = set()
        self.links: dict[tuple[str, str], deque[CopyMessage]] = {}
        self.jobs: list[tuple[str, CopyWritten]] = []
        self.disks: dict[str, set[str]] = {name: set() for name in self.names}
        self.stopped: set[str] = set()
        self.made = 0
        for name in self.names:
            self.carry_out(name, self.copies[name].run(None, self.view))

    def carry_out(self, node: str, actions: list[CopyAction]) -> None:
        """Carry out the actions of a member."""
        for action in actions:
            match action:
                case SendToPeer():
                    self.links.setdefault((node, action.peer), deque()).append(action.message)
                case DiscardCopies():
                    self.disks[node] -= {copy.location for copy in action.copies}
                case TakeCopies():
                    self.take(node, action)
                case OfferCopies():
                    self.offer(node, action)

    def offer(self, node: str, action: OfferCopies) -> None:
        """Send a request for what is there."""
        gone = {row: "gone" for row in action.counts if self.owner[row] != node or row not in self.contents}
        if gone:
            self.carry_out(node, self.copies[node].refused(OffersRefused("s", 1, action.view, action.peer, gone)))
        rows = [row for row in action.counts if row not in gone]
        if rows:
            contents = tuple(Content(row, Handle(kind="file", size=1)) for row in rows)
            counts = tuple(action.counts[row] for row in rows)
            request = CopyContents("s", 1, action.view, contents, counts)
            self.links.setdefault((node, action.peer), deque()).append(request)

    def take(self, node: str, action: TakeCopies) -> None:
        """Begin to make copies; each is there, or failed, some time later."""
        for content in action.contents:
            taken, failed = {}, {}
            if node in self.full:
                failed[content.drop] = "no space left"
            else:
                self.made += 1
                place = f"{content.drop}/{self.made}"
                self.disks[node].add(place)
                taken[content.drop] = Handle(kind="file", location=place, size=1)
            self.jobs.append((node, CopyWritten("s", 1, action.view, taken, failed)))

    def step(self) -> bool:
        """Deliver a message, end a job, or have a member begin in its view; return whether there was something."""
        links = [link for link, queue in self.links.items() if queue]
        choices = [*links, *range(len(self.jobs)), *sorted(self.stopped)]
        if not choices:
            return False
        what = self.chance.choice(choices)
        match what:
            case (sender, receiver):
                message = self.links[sender, receiver].popleft()
                if {sender, receiver} <= set(self.copies):
                    self.carry_out(receiver, self.copies[receiver].receive(sender, message))
            case int():
                node, event = self.jobs.pop(what)
                if node in self.copies:
                    self.carry_out(node, self.copies[node].written(event))
            case _:
                self.stopped.remove(str(what))
                own = {row: count for row, count in self.contents.items() if self.owner[row] == what}
                self.carry_out(str(what), self.copies[str(what)].run(None, self.view))
                self.carry_out(str(what), self.copies[str(what)].want(own))
        return True

    def commit(self, row: int, count: int) -> None:
        """Complete a drop whose content is to have copies; again only after it was reset."""
        if row not in self.completed:
            self.completed.add(row)
            self.contents[row] = count
            if self.owner[row] not in self.stopped:
                self.carry_out(self.owner[row], self.copies[self.owner[row]].want({row: count}))

    def release(self, row: int) -> None:
        """Release a content, if its owner runs."""
        if row in self.contents and self.owner[row] not in self.stopped:
            del self.contents[row]
            self.carry_out(self.owner[row], self.copies[self.owner[row]].released([row]))

    def lose(self, lost: list[str], reset: set[int]) -> None:
        """Change the view: drops of lost members go where their copies are, and others run again."""
        left = [name for name in self.copies if name not in lost]
        for name in left:
            self.copies[name].stop()
            self.copies[name].report([])
        held = {name: {row for row, copy in self.copies[name].held.items() if copy.owner in lost} for name in left}
        for row, owner in self.owner.items():
            if owner in lost:
                holders = [name for name in left if row in held[name]]
                self.owner[row] = self.chance.choice(holders or left)
                if not holders and row in self.contents:
                    reset = reset | {row}
        self.contents = {row: count for row, count in self.contents.items() if row not in reset}
        self.completed -= reset
        self.view = View(self.view.number + 1, tuple(Place(name, "", 1) for name in left))
        decision = ViewDecision(
            view=self.view,
            places=tuple(left),
            placement=pack_column(np.array([left.index(self.owner[row]) for row in range(ROWS)], dtype=np.uint16)),
            reset=pack_column(np.array(sorted(reset), dtype=np.int32)),
        )
        self.copies = {name: self.copies[name] for name in left}
        for name in left:
            before = {row: copy.handle for row, copy in self.copies[name].held.items()}
            adopted = self.copies[name].next_view(decision)
            own = {row for row in before if self.owner[row] == name and row not in reset}
            assert adopted == {row: before[row] for row in own}
            self.disks[name] -= {handle.location for handle in adopted.values()}
            # Copies that had been released on their way here are contents again.
            self.contents |= {row: 1 for row in adopted if row not in self.contents}
        self.stopped = set(left)

    def check_end(self) -> None:
        """Check that all copies are where they are wanted, and nothing else is left."""
        names = set(self.copies)
        able = names - self.full
        for row, count in self.contents.items():
            owner = self.owner[row]
            holders = {name for name in names if row in self.copies[name].held}
            assert self.copies[owner].safe.get(row, set()) == holders
            assert min(count, len(able - {owner})) <= len(holders) <= self.copies[owner]._count[row]
            assert all(self.copies[name].held[row].owner == owner for name in holders)
        for name, one in self.copies.items():
            assert one.held.keys() <= self.contents.keys()
            assert self.disks[name] == {copy.handle.location for copy in one.held.values()}
            assert not one.waits_for()
            assert not one.waiting


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_copies_are_where_they_are_wanted_in_the_end(data: st.DataObject) -> None:
    """After losses, releases, resets and full disks: as many as there are members for, and nothing is left over."""
    members = data.draw(st.integers(2, 6))
    full = set(data.draw(st.lists(st.sampled_from("abcdef"), max_size=2)))
    session = Session(members, random.Random(data.draw(st.integers(0, 2**32))), full)  # noqa: S311 - to be the same
    for _ in range(data.draw(st.integers(0, 25))):
        match data.draw(st.sampled_from(["commit", "commit", "commit", "release", "step", "step", "lose"])):
            case "commit":
                session.commit(data.draw(st.integers(0, ROWS - 1)), data.draw(st.integers(1, 3)))
            case "release":
                session.release(data.draw(st.integers(0, ROWS - 1)))
            case "step":
                for _ in range(data.draw(st.integers(1, 10))):
                    session.step()
            case _:
                names = sorted(session.copies)
                lost = data.draw(st.lists(st.sampled_from(names), unique=True, max_size=len(names) - 1))
                session.lose(lost, set(data.draw(st.lists(st.integers(0, ROWS - 1), max_size=2))))
    while session.step():
        pass

    session.check_end()
