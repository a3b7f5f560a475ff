"""Carries out what `ContentCopies` and `Draining` decide about contents, for the sessions of a node."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from dropflow.data.file_writer import remove_part
from dropflow.engine.api import Handle
from dropflow.engine.session import Session
from dropflow.errors import LinkError, UsageError
from dropflow.states import DropState
from managers.messages import Content, CopyContents, Message
from managers.node.copy_events import (
    CopyWritten,
    DiscardCopies,
    NoteCopies,
    OfferCopies,
    OffersRefused,
    SendCopyMessage,
    TakeCopies,
)
from managers.node.copy_records import CopyRecords
from managers.node.drain_events import ContentsRead, ReadContents

__all__ = ["CopyEffects", "CopyHost"]

_log = logging.getLogger(__name__)


class _Owner(Protocol):
    def post(self, event: Any) -> None: ...

    def work(self, job: Callable[[], Any]) -> None: ...


class _Links(Protocol):
    def send(self, peer: str, message: Message, *, urgent: bool = False) -> None: ...


class CopyHost(Protocol):
    """The owner of a node's machine, and its links, as `managers.node.session_host.SessionHost` has them."""

    @property
    def owner(self) -> _Owner:
        """Gets events, and runs jobs."""
        ...

    @property
    def links(self) -> _Links:
        """Links to other nodes."""
        ...


class CopyEffects:
    """Offers, fetches and removes copies, and reads which contents there are.

    Parameters
    ----------
    host : CopyHost
        Has the owner and the links of the node, by the time of the first action.
    """

    def __init__(self, host: "CopyHost") -> None:
        self._host = host

    def effects(self) -> dict[type, Callable[[Any], None]]:
        """Return what carries out the actions of each type, in the owner's thread."""
        return {
            OfferCopies: self._offer,
            TakeCopies: self._take,
            DiscardCopies: self._discard,
            SendCopyMessage: lambda action: self._send_message(action.peer, action.message),
            ReadContents: self._read,
            NoteCopies: lambda action: action.hosted.session.post(lambda live: live.notes.append(action.text)),
        }

    def _offer(self, action: OfferCopies) -> None:
        hosted = action.hosted
        piece, exchange = hosted.piece, hosted.exchange

        def offer(live: Session) -> None:
            contents: list[Content] = []
            gone: dict[int, str] = {}
            for row in action.counts:
                drop = piece.local(row)
                handle = None if drop is None or not piece.is_own[drop] else live.content(drop)
                if handle is None:
                    gone[row] = "its content is not here"
                    continue
                content = exchange.contents.offer_copy(row, handle)
                if action.counts[row] or content.stamp:
                    contents.append(content)
                    hosted.copied.add(row)
            if gone:
                self._host.owner.post(OffersRefused(action.session, action.epoch, action.view, action.peer, gone))
            if contents:
                counts = tuple(action.counts[content.drop] for content in contents)
                message = CopyContents(action.session, action.epoch, action.view, tuple(contents), counts)
                self._send_message(action.peer, message)

        hosted.session.post(offer)

    def _read(self, action: ReadContents) -> None:
        piece = action.hosted.piece

        def read(live: Session) -> None:
            states, contents = live.core.drops.states, live.contents()
            found = [drop for drop, content in contents.items() if piece.is_own[drop] and content.kind != "null"]
            rows = tuple(int(piece.drop[drop]) for drop in found if states[drop] == DropState.COMPLETED)
            self._host.owner.post(ContentsRead(action.session, action.epoch, action.view, rows))

        action.hosted.session.post(read)

    def _take(self, action: TakeCopies) -> None:
        def done(taken: Mapping[int, Handle], failed: Mapping[int, str]) -> None:
            self._host.owner.post(CopyWritten(action.session, action.epoch, action.view, taken, failed))

        action.hosted.exchange.take_copies(action.peer, action.contents, done)

    def _discard(self, action: DiscardCopies) -> None:
        folder = f"{action.hosted.directory.path / 'copies'}/"
        paths = [copy.location for copy in action.copies if copy.location.startswith(folder)]

        def job() -> None:
            records = CopyRecords(action.hosted.directory.path)
            for path in paths:
                remove_part(path)
                records.forget(path)

        if paths:
            self._host.owner.work(job)

    def _send_message(self, peer: str, message: Message) -> None:
        try:
            self._host.links.send(peer, message, urgent=True)
        except (LinkError, UsageError) as error:
            # If the node is lost, the view changes, and another one is asked.
            _log.info("node %s could not be sent a message about copies: %s", peer, error)
