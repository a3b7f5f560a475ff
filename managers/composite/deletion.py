"""Deleting sessions, also from children that are away: they do it when they are back."""

import logging
import threading
from collections.abc import Iterable
from functools import partial

from dropflow.errors import DropflowError, LinkError
from dropflow.rest.schema import SessionInfo
from managers.composite.asking import Asker
from managers.composite.children import Children, ChildView
from managers.composite.deploying import failed
from managers.composite.fanout import Fanout
from managers.composite.session_cache import SessionCache

__all__ = ["Deletion"]

_LOG = logging.getLogger("dropflow.composite")
_SECONDS = 30.0
_SILENT_SECONDS = 3.0
_REMEMBERED = 10_000


class Deletion:
    """Forgets sessions.

    What could not be deleted because a child was away is remembered, as long as this process lives: the session is not
    told any more, and deleted when the child tells of it again.
    """

    def __init__(self, asker: Asker, children: Children, cache: SessionCache, fanout: Fanout) -> None:
        self._asker = asker
        self._children = children
        self._cache = cache
        self._fanout = fanout
        self._lock = threading.Lock()
        self._doomed: dict[tuple[str, str], int] = {}
        """By session and address of the child: the deployment that is to be deleted."""

    def delete(self, session: str) -> None:
        """Forget a session on all children.

        Raises
        ------
        NotFoundError
            No child has it, or had it.
        LinkError
            A child that is not lost did not answer. It was deleted elsewhere.
        DropflowError
            A child could not: its error, naming it. It was deleted elsewhere.
        """
        self._children.settle(2.0)
        unheard = self._cache.unheard(session, {view.url: view for view in self._children.views()})
        holders = {*self._cache.holders(session), *(view.url for view in unheard)}
        epochs = {url: self._cache.epoch_of(session, url) or self._cache.epoch_of(session) for url in holders}
        self._children.settle_silent(holders, _SILENT_SECONDS)
        replies = self._asker.ask(lambda child: child.delete(session), seconds=_SECONDS)
        away = [view for view, _ in replies.missing if view.url in holders]
        if not away:
            replies.raise_unless_answered(f"session {session!r}")
        for view in away:
            self._doom(session, view.url, epochs[view.url])
        refused = {view.url: (view.name, error) for view, error in replies.refusals}
        self._cache.forget(session, [url for url in holders if url not in refused])
        if refused:
            raise failed(dict(refused.values()), f"could not delete session {session!r}")
        silent = [view for view in away if not self._children.view(view.url).is_lost]
        names = ", ".join(view.name for view in away)
        if silent:
            raise LinkError(
                f"session {session!r} is deleted, but {names} did not answer",
                hint="it is deleted there too, as soon as an answer comes",
            )
        if away:
            _LOG.warning("session %s is deleted; on %s, which is lost, it will be when it comes back", session, names)

    def epoch_of(self, session: str) -> int:
        """The newest deployment of this session that is to be deleted on children that were away; 0 if none is."""
        with self._lock:
            return max((epoch for (name, _), epoch in self._doomed.items() if name == session), default=0)

    def without_doomed(self, view: ChildView, sessions: Iterable[SessionInfo]) -> tuple[SessionInfo, ...]:
        """What a child tells, less what is to be deleted there; that is deleted now."""
        kept = []
        for info in sessions:
            with self._lock:
                is_doomed = self._doomed.get((info.session, view.url)) == info.epoch
            if is_doomed:
                self._fanout.spawn(view.url, partial(self._carry_out, view, info.session))
            else:
                kept.append(info)
        return tuple(kept)

    def _doom(self, session: str, url: str, epoch: int) -> None:
        with self._lock:
            self._doomed[session, url] = epoch
            while len(self._doomed) > _REMEMBERED:
                del self._doomed[next(iter(self._doomed))]

    def _carry_out(self, view: ChildView, session: str) -> None:
        try:
            view.manager.delete(session)
        except DropflowError as error:
            # It is told of again with the next sign of life, and tried again then.
            _LOG.warning("session %s could not be deleted on %s: %s", session, view.name, error)
