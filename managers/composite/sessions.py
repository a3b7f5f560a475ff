"""Operations of a composite on sessions: it asks the children, remembers their answers, and merges them."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf

import msgspec

from dropflow.api.manager import Manager
from dropflow.api.requests import CancelRequest, ResumeRequest, SubmitQuery
from dropflow.api.session_records import SessionDetail, SessionInfo, SessionVersion
from dropflow.errors import ConflictError, DropflowError, LinkError, NotFoundError
from dropflow.graph.physical import PhysicalGraph
from dropflow.states import UNKNOWN, SessionState
from managers.composite.children import ChildView, MachineTime, Newest
from managers.composite.deployments import Deployments, merge_errors
from managers.composite.merging import as_info
from managers.composite.resumptions import Resumptions
from managers.composite.routines import Replies, Routine, Until
from managers.composite.shared import Shared
from managers.deployment import Deployment

_LINGER = 10.0
"""Seconds for which a session is watched after the last request: clients that poll come back soon."""
_LONGEST = 5.0
"""Seconds that a long poll waits at a child."""
_SHORTEST = 0.1
"""Seconds between two long polls of a session at a child, however fast it changes."""
_AFTER_ERROR = 1.0
"""Seconds between a long poll that failed and the next one."""
_MOST = 16
"""Most long polls at a time: each takes a thread."""
_REMEMBERED_DELETIONS = 10_000
"""Deletions that are remembered for children without an answer."""
_CANCEL_SECONDS = 10.0
"""Seconds in which each child must answer that it cancels a session."""
_DELETE_SECONDS = 30.0
"""Seconds in which each child must delete a session."""
_GRAPH_SECONDS = 30.0
"""Seconds in which a child must send the graph of a session."""

# Watching sessions at the children while they are watched here.
#
# However many requests watch a session, there is one long poll for each child that has a part of it. There is a bound
# on long polls: beyond it, changes come with the status of the child, once per period.


@dataclass(frozen=True)
class LongPoll:
    """A long poll to send: one session at one child."""

    session: str
    url: str
    seconds: float = _LONGEST


class SessionWatch:
    """The sessions that are watched, and the long polls that are under way."""

    def __init__(self, time: MachineTime) -> None:
        self._time = time
        self._watchers: Counter[str] = Counter()
        self._left: dict[str, float] = {}
        """Time at which the last watcher of a session left, by session."""
        self._under_way: set[tuple[str, str]] = set()
        self._next: dict[tuple[str, str], float] = {}
        """Time at which the next long poll of a session at a child may be sent, by session and URL."""

    def enter(self, session: str) -> None:
        """Note that one more request watches a session."""
        self._watchers[session] += 1

    def leave(self, session: str, *, is_over: bool = False) -> None:
        """Note that a request does not watch a session any more. A session that is over is not watched further."""
        self._watchers[session] -= 1
        if self._watchers[session]:
            return
        del self._watchers[session]
        if is_over:
            self._forget(session)
        else:
            self._left[session] = self._time.now

    def sessions(self) -> list[str]:
        """Return the sessions that are watched, or were a moment ago."""
        for session, left in list(self._left.items()):
            if self._time.now - left >= _LINGER and session not in self._watchers:
                self._forget(session)
        return list(dict.fromkeys((*self._watchers, *self._left)))

    def begin(self, wanted: Iterable[tuple[str, str]]) -> list[LongPoll]:
        """Return the long polls to send now, among these sessions at these children; the oldest first."""
        due = [key for key in wanted if key not in self._under_way and self._next.get(key, 0.0) <= self._time.now]
        oldest = sorted(due, key=lambda key: self._next.get(key, 0.0))[: _MOST - len(self._under_way)]
        self._under_way.update(oldest)
        return [LongPoll(session, url) for session, url in oldest]

    def end(self, poll: LongPoll, *, is_answered: bool) -> None:
        """Note that a long poll is over."""
        self._under_way.discard((poll.session, poll.url))
        if poll.session in self._watchers or poll.session in self._left:
            self._next[poll.session, poll.url] = self._time.now + (_SHORTEST if is_answered else _AFTER_ERROR)

    def deadline(self) -> float:
        """Return the time at which the next long poll may be sent."""
        due = [moment for key, moment in self._next.items() if key not in self._under_way and moment > self._time.now]
        return min(due, default=inf)

    def _forget(self, session: str) -> None:
        self._left.pop(session, None)
        self._next = {key: due for key, due in self._next.items() if key[0] != session}


# Sessions that are to be deleted on children that did not answer. They are deleted when these children answer again.


class PendingDeletions:
    """The newest deployment that is to be deleted, by session and child, for as long as this process lives.

    Older deployments under the same name are to be deleted with it.
    """

    def __init__(self) -> None:
        self._epochs = Newest[tuple[str, str], int](_REMEMBERED_DELETIONS)

    def add(self, session: str, url: str, epoch: int) -> None:
        """Note that this deployment of a session, and earlier ones, are to be deleted on a child."""
        self._epochs[session, url] = max(epoch, self._epochs.get((session, url), epoch))

    def has(self, session: str, url: str, epoch: int) -> bool:
        """Return whether this deployment of a session is to be deleted on a child."""
        return epoch <= self._epochs.get((session, url), -1)

    def epoch_of(self, session: str) -> int:
        """Return the newest deployment of a session that is to be deleted on a child; 0 if there is none."""
        return max((epoch for (name, _), epoch in self._epochs.items() if name == session), default=0)

    def forget_child(self, url: str) -> None:
        """Remove the deletions on a child that was removed."""
        for key in [key for key in self._epochs if key[1] == url]:
            del self._epochs[key]


class Sessions:
    """Routines on sessions.

    Parameters
    ----------
    delete_at : callable
        Deletes a session on a child, in the background, unless its deployment there is newer than an epoch.
    """

    def __init__(
        self,
        shared: Shared,
        *,
        deployments: Deployments,
        resumptions: Resumptions,
        deletions: PendingDeletions,
        delete_at: Callable[[str, str, int], None],
    ) -> None:
        self._shared = shared
        self._deployments = deployments
        self._resumptions = resumptions
        self._delete_at = delete_at
        self._deletions = deletions
        self._merged: dict[str, SessionDetail | None] = {}
        """Sessions that were merged since the last change."""
        self._merged_at = (-1, -1)
        self.watched = SessionWatch(shared.time)

    def merged(self, session: str) -> SessionDetail | None:
        """Return the session as far as it is known; None if no child has it."""
        key = (self._shared.children.changes, self._shared.cache.changes)
        if self._merged_at != key:
            self._merged_at = key
            self._merged.clear()
        if session not in self._merged:
            self._merged[session] = self._shared.cache.merged(session, self._shared.children.by_url())
        return self._merged[session]

    def all_merged(self) -> list[SessionDetail]:
        """Return all sessions as far as they are known, the youngest first."""
        merged = [self.merged(session) for session in self._shared.cache.sessions()]
        known = [detail for detail in merged if detail is not None]
        return sorted(known, key=lambda detail: (-detail.created, detail.session))

    def note(self, view: ChildView, info: SessionInfo, *, since: int) -> bool:
        """Store an answer of a child. Return False if its session is to be deleted there."""
        if self.delete_if_wanted(view, info):
            return False
        self._shared.cache.note(view, info, since=since)
        return True

    def note_list(self, view: ChildView, infos: Iterable[SessionInfo], others: Iterable[str], *, since: int) -> None:
        """Store the list of the sessions of a child, which also has the `others`."""
        present = [info.session for info in infos if self.note(view, info, since=since)]
        self._shared.cache.note_others_absent(view.url, {*present, *others}, since=since)

    def wanted_polls(self) -> list[tuple[str, str]]:
        """Return the watched sessions and the children to ask for their changes."""
        watched = self.watched.sessions()
        urls = {url for url, view in self._shared.children.by_url().items() if view.is_asked} if watched else set()
        return [
            (session, url)
            for session in watched
            for url in sorted(self._shared.cache.holders(session) & urls)
            if not self._shared.cache.is_over_at(session, url)
        ]

    def delete_if_wanted(self, view: ChildView, session: SessionInfo | SessionVersion) -> bool:
        """Delete a session on a child that did not answer the deletion; return False if it is a later deployment."""
        if not self._deletions.has(session.session, view.url, session.epoch):
            return False
        self._delete_at(session.session, view.url, session.epoch)
        return True

    def forget_child(self, url: str) -> None:
        """Remove the answers of a child that was removed."""
        self._shared.cache.forget_child(url)
        self._deletions.forget_child(url)

    # Operations.

    def sessions(self) -> Routine[tuple[SessionInfo, ...]]:
        """Return all sessions of the children, the youngest first."""
        since = self._shared.cache.answers
        replies = yield from self._shared.requests.ask_all(partial(Manager.sessions))
        for view, infos in replies.values:
            self.note_list(view, infos, (), since=since)
        return tuple(as_info(detail) for detail in self.all_merged())

    def session(self, session: str) -> Routine[SessionDetail]:
        """Return one session as it is now, as far as the children answer."""
        since = self._shared.cache.answers
        replies = yield from self._shared.requests.ask_all(partial(Manager.session, session=session))
        for view, detail in replies.values:
            self.note(view, detail, since=since)
        for view in replies.absent:
            self._shared.cache.note_absent(session, view.url, since=since)
        merged = self.merged(session)
        if merged is None:
            why = self._deployments.why_undone(session)
            if why:
                raise NotFoundError(f"session {session!r} was not started: {why}", hint="submit the graph again")
            if not self._deletions.epoch_of(session):
                replies.raise_unless_answered(f"session {session!r}")
            raise NotFoundError(f"session {session!r} was deleted", hint="see the list of sessions")
        lacking = self._shared.cache.lacking_nodes(session, replies.absent) if merged.is_over else ()
        if lacking:
            note = (
                f"{', '.join(lacking)} had a part of the session and has it no more: its drops and results are missing"
            )
            merged = msgspec.structs.replace(merged, notes=(*merged.notes, note))
        # Other nodes may have taken over the drops of a silent node, which is shown in the list of nodes.
        late = [view for view, _ in (*replies.refusals, *replies.missing) if view.state == "alive"]
        old = sorted(view.name for view in late if self._shared.cache.has_old_details(session, view.url))
        if not old:
            return merged
        # The status of the child, which is requested every second, had the numbers of the whole session.
        note = f"{', '.join(old)} did not answer in time: counts by logical node and failures there are older"
        return msgspec.structs.replace(merged, notes=(*merged.notes, note))

    def watch(self, session: str, version: int, seconds: float) -> Routine[SessionDetail]:
        """Return the session once its version is not `version`, or it is over, or `seconds` have passed.

        Raises
        ------
        NotFoundError
            It was deleted.
        """
        cache = self._shared.cache
        detail = yield from self.session(session)
        deadline = self._shared.time.now + seconds

        def is_newer() -> bool:
            nonlocal detail
            now = self.merged(session)
            if now is None:
                return True
            detail = now
            return now.version != version or now.is_over

        self.watched.enter(session)
        try:
            yield Until(is_newer, max(deadline - self._shared.time.now, 0.0))
        finally:
            now = self.merged(session)
            self.watched.leave(session, is_over=now is None or now.is_over)
        if self.merged(session) is None:
            detail = yield from self.session(session)
        elif detail.is_over and any(cache.has_old_details(session, url) for url in cache.holders(session)):
            # The end was in the list of sessions, which has no details.
            with suppress(NotFoundError):
                detail = yield from self.session(session)
        return detail

    def cancel(self, session: str, reason: str, grace: float) -> Routine[SessionInfo]:
        """Cancel a session on all children that answer. One that is being deployed from here is not started.

        Raises
        ------
        LinkError
            Children with a part that is not over did not answer. The others did it.
        """
        since = self._shared.cache.answers
        is_deploying = self._deployments.cancel(session, reason)
        replies = yield from self._shared.requests.ask_all(
            partial(Manager.cancel, session=session, reason=reason, grace=grace), _CANCEL_SECONDS
        )
        if is_deploying:
            return _cancelled(session, reason)
        if not self._shared.cache.holders(session):
            replies.raise_unless_answered(f"session {session!r}")
        for view, info in replies.values:
            self.note(view, info, since=since)
        if replies.refusals:
            raise replies.refusals[0][1]
        try:
            detail = yield from self.session(session)
        except NotFoundError:
            if not replies.values:
                raise
            return _cancelled(session, reason)  # it was being prepared, and is removed
        self._refuse_missing(detail, replies, "is cancelled", "cancel")
        return as_info(detail)

    def pause(self, session: str) -> Routine[SessionInfo]:
        """Pause a session on all children that answer. Raises as `cancel`."""
        return self._switch(session, partial(Manager.pause, session=session), "is paused", "pause")

    def unpause(self, session: str) -> Routine[SessionInfo]:
        """Continue a session on all children that answer. Raises as `cancel`."""
        return self._switch(session, partial(Manager.unpause, session=session), "continues", "continue")

    def _switch(self, session: str, call: partial[SessionInfo], done: str, verb: str) -> Routine[SessionInfo]:
        replies = yield from self._shared.requests.ask_all(call)
        if not self._shared.cache.holders(session):
            replies.raise_unless_answered(f"session {session!r}")
        if replies.refusals:
            raise replies.refusals[0][1]
        detail = yield from self.session(session)
        self._refuse_missing(detail, replies, done, verb)
        return as_info(detail)

    def _refuse_missing(self, detail: SessionDetail, replies: Replies[SessionInfo], done: str, verb: str) -> None:
        """Raise an error that names the children with a part of a session that have not answered, unless it is over."""
        session = detail.session
        present = self._shared.cache.holders(session) - self._shared.cache.former_holders(session)
        unknown = {view.url for view in self._shared.cache.silent_children(session, self._shared.children.by_url())}
        wanted = unknown | {url for url in present if not self._shared.cache.is_over_at(session, url)}
        missing = [f"{view.name} ({why})" for view, why in replies.missing if view.url in wanted]
        if missing and not detail.is_over:
            raise LinkError(
                f"session {session!r} {done} only in part: {', '.join(missing)} did not answer",
                where=self._shared.name,
                hint=f"'dropflow {verb} {session}' again, when {'it answers' if len(missing) == 1 else 'they answer'}",
            )

    def submit(self, graph: PhysicalGraph, options: SubmitQuery, needs: Sequence[str] = ()) -> Routine[SessionInfo]:
        """Deploy a graph with these needs and start it; see `dropflow.api.manager.Manager.submit`."""
        name = options.session
        if name:
            yield from self._refuse_taken(name)
        after = max(self._shared.cache.epoch_of(name), self._deletions.epoch_of(name))
        try:
            deployment = yield from self._deployments.submit(graph, options, after=after, needs=needs)
        except ConflictError:
            raise  # another session has the name
        except DropflowError as error:
            if name:
                self._deployments.note_undone(name, str(error))
            raise
        try:
            detail = yield from self.session(deployment.session)
        except NotFoundError:
            raise  # it was deleted meanwhile
        except DropflowError as error:
            # It runs. An error would tell the caller to submit it again.
            return _started(deployment, error)
        return as_info(detail)

    def graph(self, session: str) -> Routine[PhysicalGraph]:
        """Return the graph of a session from the first child that can read it: each of them has the whole graph."""
        views = self._shared.children.by_url()
        replies = yield from self._shared.requests.ask_all(partial(Manager.session, session=session))
        replies.raise_unless_answered(f"session {session!r}")
        call = partial(Manager.graph, session=session)
        graphs = Replies[PhysicalGraph]()
        for view, _ in replies.values:
            graphs = yield from self._shared.requests.ask_each({view.url: call}, views, _GRAPH_SECONDS)
            if graphs.values:
                break
        graphs.raise_unless_answered(f"graph of session {session!r}")
        return graphs.values[0][1]

    def resume(self, session: str, request: ResumeRequest) -> Routine[SessionInfo]:
        """Continue a session that is over, or try its failed drops again; see `dropflow.api.manager.Manager.resume`."""
        yield from self._resumptions.resume(session, request, after=self._shared.cache.epoch_of(session))
        detail = yield from self.session(session)
        return as_info(detail)

    def undo(self, session: str, epoch: int, reason: str) -> Routine[None]:
        """Undo a deployment below."""
        yield from self._deployments.undo(session, epoch, reason)
        self._shared.cache.forget(session)

    def delete(self, session: str, epoch: int | None) -> Routine[None]:
        """Delete a session on all children; on children that do not answer, as soon as they answer.

        Parameters
        ----------
        epoch : int or None
            Delete only this deployment and older ones, since the name may be used again; None for all.

        Raises
        ------
        NotFoundError
            No child has it, or had it.
        LinkError
            A child that is not lost did not answer. The session was deleted on the others.
        DropflowError
            A child could not delete it: its error, naming the child. The session was deleted on the others.
        """
        yield from self._shared.requests.settle()
        silent = self._shared.cache.silent_children(session, self._shared.children.by_url())
        holders = {*self._shared.cache.holders(session), *(view.url for view in silent)}
        known = self._shared.cache.epoch_of(session)
        yield from self._shared.requests.wait_for_silent(holders)
        replies = yield from self._shared.requests.ask_all(
            partial(Manager.delete, session=session, epoch=epoch), _DELETE_SECONDS
        )
        away = [(view, why) for view, why in replies.missing if view.url in holders]
        if not away:
            replies.raise_unless_answered(f"session {session!r}")
        children = self._shared.children.by_url()
        for view, _ in replies.missing:
            if view.url in children:  # one that was removed meanwhile keeps its sessions
                self._deletions.add(session, view.url, known if epoch is None else epoch)
        refused = {view.url: (view.name, error) for view, error in replies.refusals}
        urls = {*holders, *children}
        former = [url for url in urls if epoch is None or self._shared.cache.epoch_of(session, url) <= epoch]
        self._shared.cache.forget(session, [url for url in former if url not in refused])
        if refused:
            raise merge_errors(dict(refused.values()), f"could not delete session {session!r}")
        lost = {view.url for view in self._shared.children.views() if view.is_lost}
        done = f"session {session!r} is deleted, but "
        if away:
            self._shared.log(f"{done}on {', '.join(view.name for view, _ in away)} only when an answer comes")
        if any(view.url not in lost for view, _ in away):
            # An island names its nodes that did not answer.
            texts = [
                why.removeprefix(done) if why.startswith(done) else f"{view.name} did not answer" for view, why in away
            ]
            raise LinkError(
                done + "; ".join(texts),
                hint="it is deleted there too, as soon as an answer comes",
            )

    def _refuse_taken(self, session: str) -> Routine[None]:
        try:
            yield from self.session(session)
        except (NotFoundError, LinkError):
            return  # a node that does not answer now refuses the name itself if it has it
        raise ConflictError(
            f"there is a session {session!r} already", where=self._shared.name, hint="choose another name, or delete it"
        )


def _started(deployment: Deployment, error: DropflowError) -> SessionInfo:
    """Return the record of a session that was started, but could not be read since."""
    nodes = tuple(sorted(place.node for place in deployment.places))
    return SessionInfo(
        session=deployment.session,
        graph=deployment.graph,
        status=UNKNOWN,
        epoch=deployment.epoch,
        drops=deployment.drops,
        created=deployment.created,
        joined_by=deployment.joined_by,
        request_id=deployment.request_id,
        user=deployment.user,
        nodes=nodes,
        text=f"it was started, and could not be looked up since: {error.text}",
        unknown=nodes,
        whole=deployment.drops,
    )


def _cancelled(session: str, reason: str) -> SessionInfo:
    """Return a session that was cancelled before it was started: only its name is left."""
    text = CancelRequest(reason=reason).text
    return SessionInfo(session=session, graph="", status=SessionState.CANCELLED.name, text=text)
