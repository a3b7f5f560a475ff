"""A slow, obvious model of a composite: checks every request that it makes and every answer that it gives.

The model sees what goes into the machine and what comes out of it, and not what is in it. Where the machine may do one
thing or another, because it cannot know in which order children carried requests out, the model allows both.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from dropflow.api.node_records import ManagerStatus
from dropflow.api.session_records import SessionInfo
from dropflow.errors import LinkError, NotFoundError
from managers.machine_calls import Answered, Ask, Return, Unanswered

# A slow, obvious model of deployments: which steps a composite may take after which answers.


STEPS = ("prepare", "start", "undo")


@dataclass
class DeploymentRecord:
    """The requests of one deployment, by step and child, with their answers: True, False, or None without one.

    A deployment of a call `submit` goes through all steps; those that a master orders one by one are not recorded.
    """

    session: str
    epoch: int
    children: frozenset[str]
    """URLs of the children of its nodes."""
    steps: dict[str, dict[str, bool | None]] = field(default_factory=lambda: {"prepare": {}, "start": {}, "undo": {}})

    def ask(self, ask: Ask) -> None:
        """Check a request: nothing starts before all are prepared, and nothing is undone without a failure."""
        step = self.steps[ask.operation]
        assert ask.url in self.children, f"{ask.operation} is sent to {ask.url}, which has no part"
        assert ask.url not in step, f"{ask.operation} is sent to {ask.url} twice"
        step[ask.url] = None
        if ask.operation == "start":
            assert self._are_all("prepare"), "a part is started before all are prepared"
            assert not self.steps["undo"], "a part is started after the deployment is undone"
        elif ask.operation == "undo":
            assert not (self._are_all("prepare") and self._are_all("start")), "a deployment that succeeded is undone"

    def answer(self, ask: Ask, event: Answered | Unanswered) -> None:
        """Note an answer; the first counts."""
        if self.steps[ask.operation][ask.url] is None:
            self.steps[ask.operation][ask.url] = isinstance(event, Answered)

    @property
    def is_started(self) -> bool:
        """Whether all children have prepared and started it, and nothing was undone."""
        return self._are_all("prepare") and self._are_all("start") and not self.steps["undo"]

    def check_undone(self) -> None:
        """Check that a deployment that failed is undone on all children to which it was sent."""
        for url in self.steps["prepare"]:
            assert url in self.steps["undo"], f"a deployment that failed is not undone on {url}: {self.steps}"

    def _are_all(self, step: str) -> bool:
        outcomes: Mapping[str, bool | None] = self.steps[step]
        return set(outcomes) == self.children and all(outcomes.values())


# A slow, obvious model of what a composite may show of a session: which answers it got, and which supersede others.
#
# An answer is superseded by one that was asked for after it was taken in, by one with a newer version, and by a
# deletion. What the composite shows must come from answers that are not superseded.


_MANY = 8
"""Answers of a child about a session from which on those that are not needed any more are dropped."""


@dataclass(eq=False)
class Evidence:
    """One answer of a child about one session. Times are numbers of events.

    Attributes
    ----------
    asked : int
        When the call began that made the request.
    part : tuple of (int, int) or None
        Epoch and version; None if the child does not have the session.
    taken : float
        Since when it certainly counts; infinity if it may have come too late for its request.
    by : float
        When it counts at the latest, if at all.
    sent : int
        When the request was sent.
    is_deletion : bool
        Whether the session was deleted: then no answer to an earlier request counts.
    """

    asked: int
    part: tuple[int, int] | None
    taken: float = inf
    by: float = inf
    sent: int = 0
    is_deletion: bool = False

    def replaces(self, other: "Evidence") -> bool:
        """Whether `other` is not needed any more, because it is older than this one for certain."""
        if self.taken == inf or other is self:
            return False
        return self.asked >= other.by or (self.is_deletion and other.sent < self.taken and not other.is_deletion)

    def supersedes(self, other: "Evidence") -> bool:
        """Whether `other` must not be shown any more."""
        if self.taken == inf:
            return False
        if self.replaces(other):
            return True
        return self.part is not None and other.part is not None and self.part > other.part


@dataclass
class SessionEvidence:
    """All evidence of all children about all sessions, by session and the URL of the child."""

    found: dict[tuple[str, str], list[Evidence]] = field(default_factory=dict)
    hidden: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """Deletions on children that did not answer: the newest epoch that is certainly deleted, and that may be."""

    past: set[tuple[str, str, tuple[int, int]]] = field(default_factory=set)
    """All parts that came, by session and URL."""

    def add(self, session: str, url: str, evidence: Evidence) -> None:
        """Add an answer."""
        known = self._of(session, url)
        if len(known) > _MANY:
            newest = max(known, key=lambda entry: entry.part or (-1, -1))
            known[:] = [
                entry for entry in known if entry is newest or not any(other.replaces(entry) for other in known)
            ]
        known.append(evidence)
        if evidence.part is not None:
            self.past.add((session, url, evidence.part))

    def forget_child(self, url: str) -> None:
        """Remove what is known from a child that was removed."""
        self.found = {key: entries for key, entries in self.found.items() if key[1] != url}
        self.hidden = {key: epochs for key, epochs in self.hidden.items() if key[1] != url}
        self.past = {key for key in self.past if key[1] != url}

    def hide(self, session: str, url: str, sure: int, perhaps: int) -> None:
        """Note that deployments up to these epochs are deleted on a child that did not answer."""
        before = self.hidden.get((session, url), (-1, -1))
        self.hidden[session, url] = max(before[0], sure), max(before[1], perhaps)

    def current(self, session: str, url: str) -> list[tuple[int, int] | None]:
        """Return the parts that may be shown of a child: those of answers that nothing supersedes."""
        known = self._of(session, url)
        left = [entry.part for entry in known if not any(other.supersedes(entry) for other in known)]
        sure, perhaps = self.hidden.get((session, url), (-1, -1))
        shown = [part for part in left if part is None or part[0] > sure]
        return shown if any(part and part[0] > perhaps for part in shown) else [*shown, None]

    def sure_epoch(self, session: str, urls: Iterable[str]) -> int:
        """Return the newest epoch that is certainly known."""
        return max([0, *(min(part[0] if part else 0 for part in self.current(session, url)) for url in urls)])

    def newest_epoch(self, session: str) -> int:
        """Return the newest epoch that may be known."""
        parts = [entry.part for (name, _), many in self.found.items() if name == session for entry in many]
        return max((part[0] for part in parts if part), default=0)

    def check(self, session: str, info: SessionInfo | None, children: Mapping[str, str]) -> None:
        """Check what is shown of a session: a record, or that there is none.

        Parameters
        ----------
        children : mapping
            URLs of all children by name.
        """
        current = {name: self.current(session, url) for name, url in children.items()}
        certain = {name: [part for part in parts if part] for name, parts in current.items() if None not in parts}
        if info is None:
            assert not certain, f"session {session} is not shown: {certain}"
            return
        for name, sure in certain.items():
            assert info.epoch >= min(sure)[0], f"session {session} is not shown as it was deployed last: {certain}"
            if min(sure)[0] == max(sure)[0] == info.epoch:
                assert name in info.states, f"session {session} is shown without its part: {certain}"
        for name, version in info.states.items():
            assert name in children, f"session {session} is shown on {name}, which is no child"
            part = (info.epoch, version)
            if part not in current[name]:
                # A child that does not have its part any more shows the last one.
                assert None in current[name], f"session {session} shows {part} of {name}, but has {current[name]}"
                assert (session, children[name], part) in self.past, f"{name} never had {part}"
        present = [name for name, version in info.states.items() if (info.epoch, version) in current[name]]
        assert present, f"session {session} is shown, but no child has it"

    def _of(self, session: str, url: str) -> list[Evidence]:
        return self.found.setdefault((session, url), [Evidence(-1, None, -1, -1)])


_IN_TIME = {"sessions": 1.9, "session": 1.9, "cancel": 9.9}
"""Seconds within which an answer is certainly not too late for the call that asked."""
_SOURCES = {
    "sessions": {"sessions"},
    "session": {"session", "watch", "cancel", "submit"},
    "cancel": {"cancel"},
    "delete": {"delete"},
}
"""Operations that make each request."""
_LONGEST = {"status": 2.0, "children": 3.0, "remove_child": 0.1, "add_child": 3.0, "delete": 70.0, "submit": 150.0}
"""Seconds within which each operation is answered, whatever the children do; others within 50."""
_MOST = 8
"""Requests to one child at a time."""


@dataclass(eq=False)
class _OpenCall:
    """A call of the composite.

    Attributes
    ----------
    epoch : int
        For a deletion: the newest deployment that is certainly known when it begins; -1 once that is not certain.
    children : mapping
        The children when it began.
    """

    operation: str
    session: str
    began: int
    time: float
    epoch: int
    children: Mapping[str, int]
    options: object = None
    deployments: list[DeploymentRecord] = field(default_factory=list)


@dataclass(eq=False)
class _Round:
    """The requests to several children that one routine makes at once. Their answers count when the last has come."""

    operation: str
    session: str
    sources: list[_OpenCall]
    """The calls that may have made it; none if it is made in the background."""
    asked: int
    sent: int
    time: float
    is_sure: bool = True
    """Whether all answers have come in time."""
    urls: set[str] = field(default_factory=set)
    outcomes: dict[str, Answered | Unanswered] = field(default_factory=dict)
    evidence: list[Evidence] = field(default_factory=list)


@dataclass(eq=False)
class Request:
    """A request to a child that is under way. `key` tells a child from one that was removed and added again."""

    ask: Ask
    key: int
    sent: int
    time: float
    round: _Round | None = None
    deployment: DeploymentRecord | None = None


class CompositeModel:
    """What a composite knows, as far as that is certain, and what it may answer.

    Attributes
    ----------
    children : dict of str to int
        The children by URL, with their keys.
    deletions : dict
        The newest epochs of sessions that must not be left on children, by session and URL.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.event = 0
        self.children: dict[str, int] = {}
        self.requests: dict[int, Request] = {}
        self.calls: dict[int, _OpenCall] = {}
        self.deletions: dict[tuple[str, str], int] = {}
        self._evidence = SessionEvidence()
        self._rounds: list[_Round] = []
        self.shown: dict[str, SessionInfo] = {}
        self._trouble: dict[str, int] = {}
        """When a child was last found not to answer."""
        self._heard: dict[str, tuple[int, float]] = {}
        """When the last status that certainly counts was asked for, and the time of its answer."""
        self._returned: set[int] = set()
        self._submitted: set[str] = set()
        self._keys = 0

    # What goes in.

    def add_child(self, url: str) -> None:
        """Note that a child is added."""
        if url not in self.children:
            self._keys += 1
            self.children[url] = self._keys
            self._trouble[url] = self.event - 1

    def begin(self, call: int, operation: str, arguments: Mapping[str, Any]) -> None:
        """Note a call."""
        options = arguments.get("options")
        session = str(arguments.get("session", "") if options is None else options.session)
        epoch = self._evidence.sure_epoch(session, self.children) if operation == "delete" else 0
        if operation == "submit":
            self._submitted.add(session)
        self.calls[call] = _OpenCall(operation, session, self.event, self.now, epoch, dict(self.children), options)

    def plan(self, options: object, record: DeploymentRecord) -> None:
        """Note a deployment that was planned for the call with these options."""
        next(call for call in self.calls.values() if call.options is options).deployments.append(record)

    def answer(self, event: Answered | Unanswered) -> None:
        """Note an answer, if it is the first."""
        request = self.requests.pop(event.id, None)
        if request is None:
            return
        ask = request.ask
        if isinstance(event, Unanswered) and isinstance(event.error, LinkError):
            self._trouble[ask.url] = self.event
        if request.deployment is not None:
            request.deployment.answer(ask, event)
        if self.children.get(ask.url) != request.key:
            return
        if ask.operation == "undo" and isinstance(event, Unanswered) and isinstance(event.error, LinkError):
            # A deployment that a child may have got is not shown: it is deleted there when the child answers.
            self._evidence.hide(ask.arguments["session"], ask.url, -1, ask.arguments["epoch"])
        if request.round is not None:
            self._answer_round(ask.url, request.round, event)
        elif ask.operation == "status" and isinstance(event, Answered):
            self._answer_status(ask.url, request, event.value)
        elif ask.operation == "watch" and isinstance(event, Answered):
            self._add_present(
                ask.url, [event.value], Evidence(request.sent, None, self.event, self.event, request.sent)
            )

    def note_slow(self) -> None:
        """Note which children may be found not to answer now."""
        for request in self.requests.values():
            if self.now - request.time >= min(_IN_TIME.values()):
                self._trouble[request.ask.url] = self.event

    def check_calls(self) -> None:
        """Check that all calls are answered in time."""
        for call in self.calls.values():
            assert self.now - call.time <= _LONGEST.get(call.operation, 50.0), f"{call.operation} is not answered"

    # What comes out.

    def check_asks(self, asks: Iterable[Ask], cause: object) -> None:
        """Check the requests that follow from one event."""
        self._note_failures()
        rounds: dict[tuple[str, str, int], _Round] = {}
        seen: Counter[tuple[str, str, str]] = Counter()
        for ask in asks:
            # A deployment goes on, or is undone, on a child that is removed meanwhile.
            is_child = ask.url in self.children or ask.operation in STEPS
            assert is_child, f"{ask.operation} is sent to {ask.url}, which is no child"
            request = self.requests[ask.id] = Request(ask, self.children.get(ask.url, 0), self.event, self.now)
            session = str(ask.arguments.get("session", ""))
            if ask.operation in STEPS:
                request.deployment = self._deployment(ask)
                if request.deployment is not None:
                    request.deployment.ask(ask)
            elif ask.operation in _SOURCES:
                seen[ask.operation, session, ask.url] += 1
                key = (ask.operation, session, seen[ask.operation, session, ask.url])
                if key not in rounds:
                    rounds[key] = self._new_round(ask.operation, session)
                request.round = rounds[key]
                request.round.urls.add(ask.url)
        is_crowded = self._check_number()
        is_status = isinstance(cause, Answered) and isinstance(cause.value, ManagerStatus)
        for round_ in rounds.values():
            round_.is_sure = not is_crowded
            if round_.sources and round_.is_sure and not (is_status and len(round_.urls) == 1):
                missed = {url for url in self.children if self._answers(url)} - round_.urls
                assert not missed, f"{round_.operation} is not sent to {missed}"
            self._rounds.append(round_)

    def remove_child(self, url: str) -> None:
        """Note that a child was removed."""
        assert url in self.children, f"{url} is removed twice"
        del self.children[url]
        self._heard.pop(url, None)
        self._evidence.forget_child(url)
        self.deletions = {key: epoch for key, epoch in self.deletions.items() if key[1] != url}
        for call in self.calls.values():
            call.epoch = -1

    def check_return(self, action: Return, names: Mapping[str, str]) -> None:
        """Check the answer to a call.

        Parameters
        ----------
        names : mapping
            URLs of all children by name.
        """
        assert action.id not in self._returned, f"call {action.id} is answered twice"
        self._returned.add(action.id)
        call = self.calls.pop(action.id)
        self._end_rounds(call)
        if call.operation == "delete":
            self._delete(call, action.error)
        elif call.operation == "undo" and action.error is None:
            self._forget(call, self.children)
        elif call.operation == "submit":
            _check_submitted(call, action.error)
        if call.operation in ("status", "sessions") and action.error is None:
            infos = action.value[1] if call.operation == "status" else action.value
            shown = {info.session: info for info in infos}
            for session in {*shown, *(name for name, _ in self._evidence.found)}:
                self._check_shown(session, shown.get(session), names)
        elif call.operation in ("session", "watch", "cancel", "submit"):
            self._check_session(call, action, names)

    def _check_session(self, call: _OpenCall, action: Return, names: Mapping[str, str]) -> None:
        absent = all(None in self._evidence.current(call.session, url) for url in names.values())
        if isinstance(action.error, NotFoundError):
            self._check_shown(call.session, None, names)
        elif action.error is not None:
            return
        elif call.operation == "cancel" and not action.value.states:
            # It was being prepared, here or by another manager, and nothing of it is left.
            assert action.value.status == "CANCELLED"
            assert absent or call.session in self._submitted, f"session {call.session} was not being prepared"
        # A watch for the end of a session returns it, even if the session is deleted right after.
        elif not (call.operation == "watch" and action.value.is_over and absent):
            self._check_shown(call.session, action.value, names)

    def _check_shown(self, session: str, info: SessionInfo | None, names: Mapping[str, str]) -> None:
        if info is not None and info.status == "UNKNOWN" and not info.states:
            return  # it was started, and no child has answered since
        self._evidence.check(session, info, names)
        if info is None:
            return
        before = self.shown.get(session)
        if before is not None and before.version == info.version:
            same = (before.epoch, before.states, before.status) == (info.epoch, info.states, info.status)
            assert same, f"session {session} changed, but not its version: {before} {info}"
        self.shown[session] = info

    # Requests.

    def _check_number(self) -> bool:
        """Check how many requests are under way; return whether a child has so many that others wait."""
        kinds = Counter(
            (request.ask.url, request.key, kind if (kind := request.ask.operation) in ("status", "watch") else "")
            for request in self.requests.values()
        )
        most = {
            kind: max((count for key, count in kinds.items() if key[2] == kind), default=0) for kind in ("status", "")
        }
        assert most["status"] <= 1, "a child has two status requests at a time"
        assert most[""] <= _MOST, "a child has too many requests at a time"
        return most[""] == _MOST

    def _deployment(self, ask: Ask) -> DeploymentRecord | None:
        """Return the deployment that a step belongs to; None if calls order the steps one by one."""
        deployment = ask.arguments.get("deployment")
        key = (
            (deployment.session, deployment.epoch) if deployment else (ask.arguments["session"], ask.arguments["epoch"])
        )
        records = [record for call in self.calls.values() for record in call.deployments]
        return next((record for record in records if (record.session, record.epoch) == key), None)

    def _new_round(self, operation: str, session: str) -> _Round:
        wanted = _SOURCES[operation]
        sources = [call for call in self.calls.values() if call.operation in wanted and call.session == session]
        began = min((call.began for call in sources), default=self.event)
        return _Round(operation, session, sources, began, self.event, self.now)

    def _answers(self, url: str) -> bool:
        """Whether a child certainly answers."""
        number, time = self._heard.get(url, (-1, -inf))
        return number > self._trouble[url] and self.now - time < 1.0

    def _note_failures(self) -> None:
        """Note the children that failed in requests that are not over: at their end, they are found not to answer."""
        self._rounds = [round_ for round_ in self._rounds if round_.sources or len(round_.outcomes) < len(round_.urls)]
        for round_ in self._rounds:
            for url, event in round_.outcomes.items():
                if isinstance(_error_of(event), LinkError):
                    self._trouble[url] = self.event

    def _end_rounds(self, call: _OpenCall) -> None:
        """Note that no answer counts any more for the requests of a call."""
        for round_ in self._rounds:
            if call in round_.sources:
                round_.sources.remove(call)
                self._trouble |= dict.fromkeys(round_.urls & self.children.keys() - round_.outcomes.keys(), self.event)
                for entry in round_.evidence if not round_.sources else ():
                    entry.by = min(entry.by, self.event)

    # Answers.

    def _answer_status(self, url: str, request: Request, status: ManagerStatus) -> None:
        is_sure = request.sent > self._trouble[url]
        if is_sure:
            self._heard[url] = (request.sent, self.now)
        like = Evidence(request.sent, None, self.event if is_sure else inf, self.event, request.sent)
        self._add_present(url, status.sessions, like)
        self._add_absent(url, {row.session for row in (*status.sessions, *status.finished)}, like)

    def _answer_round(self, url: str, round_: _Round, event: Answered | Unanswered) -> None:
        round_.outcomes[url] = event
        if self.now - round_.time >= _IN_TIME.get(round_.operation, inf):
            round_.is_sure = False
        like = Evidence(round_.asked, None, inf, inf if round_.sources else self.event, round_.sent)
        if isinstance(event, Answered) and round_.operation != "delete":
            infos = event.value if round_.operation == "sessions" else [event.value]
            round_.evidence += self._add_present(url, infos, like)
            if round_.operation == "sessions":
                round_.evidence += self._add_absent(url, {info.session for info in infos}, like)
        elif isinstance(event, Unanswered) and isinstance(event.error, NotFoundError) and round_.operation == "session":
            round_.evidence.append(self._add(round_.session, url, None, like))
        if round_.is_sure and len(round_.outcomes) == len(round_.urls):
            for entry in round_.evidence:
                # A request in the background goes to one child, and does not count what is absent.
                is_certain = entry.part is not None or len(round_.urls) > 1
                entry.taken, entry.by = (self.event if is_certain else inf), self.event

    def _add(self, session: str, url: str, part: tuple[int, int] | None, like: Evidence) -> Evidence:
        made = Evidence(like.asked, part, like.taken, like.by, like.sent)
        self._evidence.add(session, url, made)
        return made

    def _add_present(self, url: str, infos: Iterable[SessionInfo], like: Evidence) -> list[Evidence]:
        return [self._add(info.session, url, (info.epoch, info.version), like) for info in infos]

    def _add_absent(self, url: str, present: set[str], like: Evidence) -> list[Evidence]:
        absent = {session for session, _ in self._evidence.found} - present
        return [self._add(session, url, None, like) for session in absent]

    # Deletions.

    def _delete(self, call: _OpenCall, error: Exception | None) -> None:
        """Note what a deletion has done, if it has done anything."""
        if error is not None and "is deleted, but" not in str(error) and "could not delete" not in str(error):
            return
        session, newest = call.session, self._evidence.newest_epoch(call.session)
        rounds = [
            round_
            for round_ in self._rounds
            if (round_.operation, round_.session) == ("delete", session) and round_.sent >= call.began
        ]
        forgotten = []
        for url in self.children:
            errors = [_error_of(round_.outcomes[url]) if url in round_.outcomes else LinkError("") for round_ in rounds]
            away = [isinstance(error, LinkError) for error in errors]
            if any(error is not None and not isinstance(error, LinkError | NotFoundError) for error in errors):
                self._add(session, url, None, Evidence(self.event, None))  # it may be one of another deletion
                continue
            forgotten.append(url)
            if all(away) or any(away):
                is_certain = all(away) and call.children.get(url) == self.children[url]
                epoch = call.epoch if is_certain else -1
                self._evidence.hide(session, url, epoch, newest)
                self.deletions[session, url] = max(self.deletions.get((session, url), -1), epoch)
        self._forget(call, forgotten)

    def _forget(self, call: _OpenCall, urls: Iterable[str]) -> None:
        for url in urls:
            deletion = Evidence(call.began, None, self.event, self.event, self.event, is_deletion=True)
            self._evidence.add(call.session, url, deletion)
        for other in self.calls.values():
            if other.session == call.session:
                other.epoch = -1


def _check_submitted(call: _OpenCall, error: Exception | None) -> None:
    """Check that a deployment is everywhere if the call succeeds, and nowhere otherwise."""
    started = [record for record in call.deployments if record.is_started]
    for record in call.deployments:
        if not record.is_started:
            record.check_undone()
    if error is None:
        assert len(started) == 1, f"submit succeeds with {len(started)} deployments that were started"
    else:
        is_deleted = isinstance(error, NotFoundError)
        assert not started or is_deleted, f"the session was started, but submit failed: {error!r}"


def _error_of(event: Answered | Unanswered) -> Exception | None:
    return event.error if isinstance(event, Unanswered) else None
