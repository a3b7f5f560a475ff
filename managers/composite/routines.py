"""Operations that wait for answers of children, written as generators: a state machine without threads or I/O.

A routine yields the condition that it waits for, and gets its result::

    outcomes = yield Gather((Question(url, partial(Manager.session, session=name)),), seconds=2.0)

`Routines` advances all routines of a machine. It is given answers and the time, and returns actions.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any, Generic, TypeVar

import msgspec

from dropflow.api.manager import Manager
from dropflow.api.node_records import NodeComponents, NodeInfo
from dropflow.api.requests import ResumeRequest, SubmitQuery
from dropflow.errors import DropflowError, InternalError, LinkError, NotFoundError
from dropflow.graph.physical import PhysicalGraph
from managers.composite.children import Children, ChildView, MachineTime
from managers.deployment import Place
from managers.machine_calls import Answered, Ask, Unanswered
from managers.recovery.records import StoppedPart

_MOST = 8
"""Most questions to one child that are under way at a time, and as many that may take minutes.

More of them wait, so that one child cannot take all threads.
"""

Value = TypeVar("Value")
STEPS = (Manager.prepare, Manager.start, Manager.undo)
"""The steps of a deployment. They are sent to a child even if it was removed meanwhile."""
Finish = Callable[[Any, DropflowError | None], None]
SECONDS = 2.0
"""Seconds that a request waits for a child before it looks whether the child is alive."""
_SILENT_SECONDS = 3.0
"""Seconds that children which missed a deadline are waited for, before a request goes on without them."""
_LONGEST = 12.0
"""Seconds that a request waits for a child that is slow and alive: it may read much, or wait for a child of its own."""


@dataclass(frozen=True)
class Question:
    """A method of `Manager`, with its arguments by name, to be called at one child."""

    url: str
    call: partial[Any]

    @property
    def is_step(self) -> bool:
        """Whether it is a step of a deployment."""
        return self.call.func in STEPS

    @property
    def is_long(self) -> bool:
        """Whether the answer may take minutes: a child may have to pull images before it is prepared."""
        return self.call.func is Manager.prepare


@dataclass(frozen=True)
class Outcome:
    """The result of one question: its value, or its error.

    Attributes
    ----------
    late : bool
        There was no answer in time; the child may still be at work.
    """

    value: Any = None
    error: DropflowError | None = None
    late: bool = False


@dataclass(frozen=True)
class Gather:
    """Ask one question of each of several children, and wait for the answers; the result is a dict of `Outcome` by URL.

    Attributes
    ----------
    seconds : float
        Seconds to wait for the answers. A child that gave a sign of life meanwhile gets the same time again. A lost
        child does not.
    longest : float
        Most seconds to wait for children that are slow and alive.
    grace : float or None
        Seconds to wait after the first error; None for no such limit. Children that have not answered by then are late.
    """

    questions: tuple[Question, ...]
    seconds: float
    longest: float = 0.0
    grace: float | None = None


@dataclass(frozen=True)
class Until:
    """Wait until a condition is true, for `seconds` at most; the result is None. It is checked after each event."""

    condition: Callable[[], bool]
    seconds: float


@dataclass(frozen=True)
class PlanDeployment:
    """Compute the deployment of a graph (`plan_deployment`) outside of the machine; the result is an `Outcome`."""

    graph: PhysicalGraph
    options: SubmitQuery
    nodes: tuple[NodeInfo, ...]
    after: int
    witness: Place | None = None
    components: tuple[NodeComponents, ...] = ()


@dataclass(frozen=True)
class PlanResumption:
    """Compute the deployment that continues a session (`plan_resumption`) in the same way."""

    graph: PhysicalGraph
    parts: tuple[StoppedPart, ...]
    request: ResumeRequest
    nodes: tuple[NodeInfo, ...]
    after: int
    witness: Place | None = None


class ComputePlan(msgspec.Struct, frozen=True):
    """Action: compute a deployment, and answer with `Answered` or `Unanswered`."""

    id: int
    plan: PlanDeployment | PlanResumption


class Discard(msgspec.Struct, frozen=True):
    """Action: close a value that came too late, such as an open download."""

    value: Any


Wait = Gather | Until | PlanDeployment | PlanResumption
Routine = Generator[Wait, Any, Value]
RoutineAction = Ask | Discard | ComputePlan


@dataclass(eq=False)
class _Running:
    """A routine, and the handler of its result."""

    routine: Generator[Wait, Any, Any]
    finish: Finish


@dataclass(eq=False)
class _Gathering:
    """A `Gather` that waits for answers."""

    running: _Running
    wait: Gather
    began: float
    deadline: float
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    signs: dict[str, int] = field(default_factory=dict)
    has_failed: bool = False

    @property
    def pending(self) -> list[str]:
        return [question.url for question in self.wait.questions if question.url not in self.outcomes]


@dataclass(eq=False)
class _Waiting:
    """An `Until` that is not true yet."""

    running: _Running
    wait: Until
    deadline: float


@dataclass(eq=False)
class _Child:
    """The questions to one child that are under way, and those that wait: those that may take minutes, or others."""

    under_way: int = 0
    queue: deque[tuple[_Gathering, Question]] = field(default_factory=deque)


class Routines:
    """Advances routines.

    Parameters
    ----------
    time : MachineTime
        The time of the event that is handled.
    signs : callable
        Returns how many signs of life a child has given so far.
    why_lost : callable
        Returns why a child is lost; empty if it is not.
    next_id : callable
        Returns a new id for an action that has an answer.
    """

    def __init__(
        self,
        time: MachineTime,
        *,
        signs: Callable[[str], int],
        why_lost: Callable[[str], str],
        next_id: Callable[[], int],
    ) -> None:
        self._time = time
        self._signs = signs
        self._why_lost = why_lost
        self._next_id = next_id
        self._actions: list[RoutineAction] = []
        self._asked: dict[int, tuple[_Gathering, Question]] = {}
        self._plans: dict[int, _Running] = {}
        self._children: dict[tuple[str, bool], _Child] = {}
        """Children by URL, and whether the questions may take minutes."""
        self._gatherings: list[_Gathering] = []
        self._waiting: list[_Waiting] = []

    def begin(self, routine: Generator[Wait, Any, Any], finish: Finish) -> None:
        """Start a routine; `finish` gets its result or its error."""
        self._advance(_Running(routine, finish), None)

    def remove_child(self, url: str) -> None:
        """Discard the questions that wait for a removed child, except questions that start or undo sessions there."""
        child = self._children.get((url, False))
        if child is None:
            return
        waiting = list(child.queue)
        child.queue = deque(entry for entry in waiting if entry[1].is_step)
        for gathering, question in waiting:
            if not question.is_step and gathering in self._gatherings and url in gathering.pending:
                self._note(gathering, url, Outcome(error=LinkError("it was removed"), late=True))

    def take(self, event: Answered | Unanswered) -> bool:
        """Process an answer. Return False if it is not for a request of a routine."""
        is_error = isinstance(event, Unanswered)
        outcome = Outcome(error=_own(event.error)) if isinstance(event, Unanswered) else Outcome(event.value)
        plan = self._plans.pop(event.id, None)
        if plan is not None:
            self._advance(plan, outcome)
            return True
        pending = self._asked.pop(event.id, None)
        if pending is None:
            return False
        gathering, question = pending
        self._send((question.url, question.is_long))
        if gathering not in self._gatherings:
            if not is_error:
                self._actions.append(Discard(outcome.value))
            return True
        self._note(gathering, question.url, outcome)
        return True

    def _note(self, gathering: _Gathering, url: str, outcome: Outcome) -> None:
        """Store an outcome, and end the wait if all outcomes are there."""
        gathering.outcomes[url] = outcome
        if not gathering.pending:
            self._end(gathering)
        elif outcome.error is not None and gathering.wait.grace is not None and not gathering.has_failed:
            gathering.has_failed = True
            gathering.deadline = min(gathering.deadline, self._time.now + gathering.wait.grace)

    def tick(self) -> None:
        """Check conditions and deadlines."""
        for waiting in list(self._waiting):
            if waiting.deadline <= self._time.now or waiting.wait.condition():
                self._waiting.remove(waiting)
                self._advance(waiting.running, None)
        for gathering in list(self._gatherings):
            for url in gathering.pending:
                why = self._why_lost(url)
                if why:  # a lost child is not waited for
                    self._note(gathering, url, Outcome(error=LinkError(why), late=True))
            if gathering in self._gatherings and gathering.deadline <= self._time.now:
                self._judge(gathering)

    def deadline(self) -> float:
        """Return the time of the next `tick`."""
        deadlines = [waiting.deadline for waiting in self._waiting]
        deadlines += [gathering.deadline for gathering in self._gatherings]
        return min(deadlines, default=inf)

    def actions(self) -> list[RoutineAction]:
        """Return the actions since the last call of this method."""
        actions, self._actions = self._actions, []
        return actions

    def _advance(self, running: _Running, value: Any) -> None:
        while True:
            try:
                wait = running.routine.send(value)
            except StopIteration as stop:
                running.finish(stop.value, None)
                return
            except Exception as error:  # noqa: BLE001 - the call must be answered
                running.finish(None, _own(error))
                return
            if isinstance(wait, Gather) and not wait.questions:
                value = {}
            elif isinstance(wait, Until) and wait.condition():
                value = None
            else:
                self._wait(running, wait)
                return

    def _wait(self, running: _Running, wait: Wait) -> None:
        now = self._time.now
        if isinstance(wait, Until):
            self._waiting.append(_Waiting(running, wait, now + wait.seconds))
        elif isinstance(wait, PlanDeployment | PlanResumption):
            number = self._next_id()
            self._plans[number] = running
            self._actions.append(ComputePlan(number, wait))
        else:
            gathering = _Gathering(running, wait, now, now + wait.seconds)
            gathering.signs = {question.url: self._signs(question.url) for question in wait.questions}
            self._gatherings.append(gathering)
            for question in wait.questions:
                key = (question.url, question.is_long)
                child = self._children.setdefault(key, _Child())
                child.queue.append((gathering, question))
                if child.under_way < _MOST:
                    child.under_way += 1
                    self._send(key)

    def _send(self, key: tuple[str, bool]) -> None:
        """Ask the next question that is still awaited."""
        child = self._children[key]
        while child.queue:
            gathering, question = child.queue.popleft()
            if gathering in self._gatherings:
                number = self._next_id()
                self._asked[number] = gathering, question
                left = max(gathering.wait.seconds, gathering.wait.longest) - (self._time.now - gathering.began)
                deadline = self._time.raw + left
                self._actions.append(ask(number, question.url, question.call, deadline))
                return
        child.under_way -= 1
        if not child.under_way:
            del self._children[key]

    def _judge(self, gathering: _Gathering) -> None:
        """Wait longer for children that are slow and alive, or end the wait."""
        wait = gathering.wait
        signs = {url: self._signs(url) for url in gathering.pending}
        is_alive = any(count > gathering.signs[url] for url, count in signs.items())
        gathering.signs |= signs
        end = gathering.began + max(wait.seconds, wait.longest)
        if not gathering.has_failed and is_alive and self._time.now + wait.seconds <= end:
            gathering.deadline += wait.seconds
        else:
            self._end(gathering)

    def _end(self, gathering: _Gathering) -> None:
        self._gatherings.remove(gathering)
        waited = gathering.deadline - gathering.began
        late = None if gathering.has_failed else LinkError(f"no answer within {waited:.3g} s")
        missing = Outcome(error=late, late=True)
        outcomes = {
            question.url: gathering.outcomes.get(question.url, missing) for question in gathering.wait.questions
        }
        self._advance(gathering.running, outcomes)


def ask(number: int, url: str, call: partial[Any], deadline: float) -> Ask:
    """Return the action that calls a method of `Manager`, with its arguments by name, at one child."""
    return Ask(number, url, call.func.__name__, call.keywords, deadline)


def _own(error: Exception) -> DropflowError:
    """Return an error of another library, or a bug, as a `DropflowError`."""
    if isinstance(error, DropflowError):
        return error
    wrapped = InternalError(f"the request failed: {type(error).__name__}: {error}", hint="please report it")
    wrapped.__cause__ = error
    return wrapped


# Requests to all children that answer, and the replies by kind. The operations of a composite are made of these.


@dataclass(frozen=True)
class Replies(Generic[Value]):
    """The replies to a request.

    Attributes
    ----------
    values : tuple of (ChildView, object)
        Children that answered, in their order, and their answers.
    absent : tuple of ChildView
        Children that have no such session or drop.
    refusals : tuple of (ChildView, DropflowError)
        Children that refused.
    missing : tuple of (ChildView, str)
        Children that were not asked or did not answer, and why.
    """

    values: tuple[tuple[ChildView, Value], ...] = ()
    absent: tuple[ChildView, ...] = ()
    refusals: tuple[tuple[ChildView, DropflowError], ...] = ()
    missing: tuple[tuple[ChildView, str], ...] = ()

    def raise_unless_answered(self, what: str, hint: str = "see the list of sessions") -> None:
        """Raise an error if no child has answered.

        Raises
        ------
        DropflowError
            The refusal of a child, if there is one: its text is more useful than that other children lack the session.
        NotFoundError
            All children answered that they do not have `what`.
        LinkError
            Some children did not answer, and the others do not have it.
        """
        if self.values:
            return
        if self.refusals:
            raise self.refusals[0][1]
        silent = ", ".join(f"{view.name} ({why})" for view, why in self.missing)
        if self.missing:
            # A child that does not answer may have it.
            raise LinkError(f"{what} cannot be looked up: {silent}", hint="try again, or see the list of children")
        raise NotFoundError(f"there is no {what}", hint=hint)


class Requests:
    """Routines that ask children."""

    def __init__(self, children: Children) -> None:
        self._children = children

    def settle(self, seconds: float = SECONDS) -> Routine[None]:
        """Wait until each child has answered or failed once. Later calls do not wait again for children that failed."""
        yield Until(self._children.is_settled, seconds)
        self._children.end_waiting()

    def wait_for_silent(self, urls: Iterable[str]) -> Routine[None]:
        """Wait until these children answer status requests again. A child that missed a deadline may be just busy."""
        wanted = tuple(urls)
        yield Until(lambda: not any(self._children.is_only_silent(url) for url in wanted), _SILENT_SECONDS)

    def ask_again(self, seconds: float) -> Routine[None]:
        """Send status requests to the children that do not answer now, before they are due."""
        numbers = self._children.ask_again()
        yield Until(
            lambda: all(self._children.has_answer_after(url, number) for url, number in numbers.items()), seconds
        )

    def ask_one(self, url: str, call: partial[Value], seconds: float = SECONDS) -> Routine[Value]:
        """Call a method of one child, and return its answer or raise its error."""
        outcomes = yield Gather((Question(url, call),), seconds)
        outcome: Outcome = outcomes[url]
        if outcome.error is not None:
            raise outcome.error
        value: Value = outcome.value
        return value

    def ask_all(self, call: partial[Value], seconds: float = SECONDS) -> Routine[Replies[Value]]:
        """Call a method of all children."""
        yield from self.settle(seconds)
        views = self._children.by_url()
        replies = yield from self.ask_each(dict.fromkeys(views, call), views, seconds)
        return replies

    def ask_each(
        self, calls: Mapping[str, partial[Value]], views: Mapping[str, ChildView], seconds: float = SECONDS
    ) -> Routine[Replies[Value]]:
        """Call a method of some children, by URL."""
        questions = tuple(Question(url, call) for url, call in calls.items() if views[url].is_asked)
        outcomes = yield Gather(questions, seconds, longest=max(seconds, _LONGEST))
        values: list[tuple[ChildView, Value]] = []
        absent: list[ChildView] = []
        refusals: list[tuple[ChildView, DropflowError]] = []
        missing = [(views[url], views[url].text) for url in calls if not views[url].is_asked]
        for url, outcome in outcomes.items():
            error = outcome.error
            if error is None:
                values.append((views[url], outcome.value))
            elif isinstance(error, NotFoundError):
                absent.append(views[url])
            elif isinstance(error, LinkError):
                self._children.silence(url, error.text)
                missing.append((views[url], error.text))
            else:
                refusals.append((views[url], error))
        return Replies(tuple(values), tuple(absent), tuple(refusals), tuple(missing))
