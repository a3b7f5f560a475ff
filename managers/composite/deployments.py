"""Submits graphs: plans them, and deploys the whole graph to each child with nodes of the session.

A deployment has two steps: all children prepare, then all start. Nothing runs until all have prepared. If a child fails
or misses the deadline, the deployment is undone on all children, also on that one: it may only have been slow.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import NamedTuple

import msgspec

from dropflow.api.manager import Manager
from dropflow.api.node_records import NodeComponents, NodeInfo
from dropflow.api.requests import CancelRequest, SubmitQuery
from dropflow.errors import (
    BadGraphError,
    ConflictError,
    DropflowError,
    GoneError,
    HttpError,
    LinkError,
    NotFoundError,
    RestartedError,
    StorageError,
    WorldError,
)
from dropflow.graph.physical import PhysicalGraph
from managers.composite.children import ChildView, Newest, children_by_node, nodes_of
from managers.composite.routines import Gather, Outcome, PlanDeployment, Question, Routine, Until
from managers.composite.shared import Shared
from managers.deployment import Deployment

_AGAIN_SECONDS = 0.5
"""Seconds to wait for children that did not answer a moment ago."""
REPLAN_SECONDS = 5.0
"""Seconds during which a graph is planned again if nodes were started again."""
REPLAN_PAUSE_SECONDS = 0.2
"""Seconds between two plans of a graph, if a node was lost while it was deployed."""
_SESSION_START_SECONDS = 30.0
"""Seconds in which each child must start a prepared session."""
_UNDO_SECONDS = 10.0
"""Seconds that children are waited for when a deployment is undone; those without an answer undo it later."""
_COMPONENTS_SECONDS = 30.0
"""Seconds that nodes may take to look for modules, programs and container engines."""
_GRACE = 0.5
"""Seconds to wait for other children after one has failed, so that the error names all failures."""
_REMEMBERED_DEPLOYMENTS = 1000
"""Deployments whose reason to be undone, and whose prepared nodes, are remembered."""

UndoLater = Callable[[str, str, int], object]
"""Takes a session, the URL of a child and an epoch: removes the deployment there once the child answers."""


@dataclass(frozen=True)
class _Target:
    """A child to deploy to, and the nodes that are reached through it."""

    view: ChildView
    nodes: tuple[str, ...]


class _PreparedNodes(NamedTuple):
    """The nodes that were prepared for a deployment, and whether it continues a session."""

    nodes: frozenset[str]
    is_continuation: bool


class Deployments:
    """Routines that deploy sessions.

    The nodes that were prepared are remembered until `start`, so that a child without its part is an error. A composite
    that was restarted in between asks all children to start, and a child without a part is not an error.
    """

    def __init__(self, shared: Shared, *, deploy_seconds: float, undo_later: UndoLater) -> None:
        self._shared = shared
        self._deploy_seconds = deploy_seconds
        self._undo_later = undo_later
        self._undone = Newest[str, str](_REMEMBERED_DEPLOYMENTS)
        """Reasons why the last deployment was undone, by session."""
        self._prepared = Newest[tuple[str, int], _PreparedNodes](_REMEMBERED_DEPLOYMENTS)
        self._submitting: dict[str, DropflowError | None] = {}
        """Sessions that `submit` is deploying, by name: the error if it was cancelled, else None."""

    def nodes(self) -> Routine[tuple[NodeInfo, ...]]:
        """Return all nodes below, from the last answers of the children; those that do not answer are asked again."""
        yield from self._shared.requests.settle()
        yield from self._shared.requests.ask_again(_AGAIN_SECONDS)
        return self._present_nodes()

    def components(self, needs: Sequence[str]) -> Routine[tuple[NodeComponents, ...]]:
        """Return the components of the nodes that answer, and which of these needs each lacks, sorted by name."""
        call = partial(Manager.components, needs=needs)
        replies = yield from self._shared.requests.ask_all(call, _COMPONENTS_SECONDS)
        entries = (node for _, nodes in replies.values for node in nodes)
        return tuple(sorted(entries, key=lambda entry: entry.node))

    def why_undone(self, session: str) -> str:
        """Return why the last deployment of a session was undone; empty if it was not undone, or never deployed."""
        return self._undone.get(session, "")

    def submit(
        self, graph: PhysicalGraph, options: SubmitQuery, *, after: int, needs: Sequence[str] = ()
    ) -> Routine[Deployment]:
        """Deploy a graph and return its deployment.

        If a node is lost meanwhile, the graph is planned once more, for the nodes that are left.

        Parameters
        ----------
        after : int
            Newest epoch of a session of this name that is known.
        needs : sequence of str
            Needs of the components of the graph.

        Raises
        ------
        ConflictError
            The given name is that of a session that is being deployed. If both went on, the nodes would refuse both.
        """
        deadline = self._shared.time.now + REPLAN_SECONDS
        failed: tuple[LinkError, Deployment] | None = None
        while True:
            deployment = yield from self._planned(graph, options, after, failed, needs)
            after = deployment.epoch
            try:
                yield from self.deploy(deployment)
            except RestartedError:
                # The known incarnations were out of date, here or at an island below, which asks once per period.
                if self._shared.time.now > deadline:
                    raise
                yield Until(lambda: False, REPLAN_PAUSE_SECONDS)
            except LinkError as error:
                if failed is not None:
                    raise
                failed = error, deployment
            else:
                return deployment

    def _planned(
        self,
        graph: PhysicalGraph,
        options: SubmitQuery,
        after: int,
        failed: tuple[LinkError, Deployment] | None,
        needs: Sequence[str],
    ) -> Routine[Deployment]:
        """Return a deployment of a graph on the present nodes; `failed` has the error of a first deployment."""
        nodes = tuple(map(_without_full_disk, (yield from self.fresh_nodes())))
        if failed is not None and set(failed[1].nodes) <= {node.name for node in nodes if node.state == "alive"}:
            raise failed[0]  # no node is lost: the same would happen again
        components = (yield from self.components(needs)) if needs else ()
        planned = yield PlanDeployment(graph, options, nodes, after, self._shared.witness.place, components)
        if planned.error is not None:
            raise planned.error
        deployment: Deployment = self._under_free_name(planned.value, options)
        return msgspec.structs.replace(deployment, joined_by=self._shared.name) if options.join else deployment

    def deploy(self, deployment: Deployment) -> Routine[None]:
        """Carry out a planned deployment.

        Raises
        ------
        ConflictError
            This manager is deploying a session of that name already.
        DropflowError
            See `submit`.
        """
        if deployment.session in self._submitting:
            raise ConflictError(f"session {deployment.session!r} is being deployed already", hint="look at its status")
        self._submitting[deployment.session] = None
        self._undone.pop(deployment.session, None)
        self._shared.witness.prepare(deployment)
        try:
            yield from self._deploy(deployment)
        finally:
            del self._submitting[deployment.session]

    def url_of(self, node: str) -> Routine[str]:
        """Return the URL of the child through which a node is reached.

        Raises
        ------
        LinkError
            The node is unknown, or does not answer.
        """
        (target,) = yield from self._targets([node])
        return target.view.url

    def _under_free_name(self, deployment: Deployment, options: SubmitQuery) -> Deployment:
        """Return the deployment, with a name that no other deployment of `submit` has.

        Default names contain the time: they are equal if graphs of one name are submitted within a millisecond.
        """
        wanted = deployment.session
        if wanted not in self._submitting:
            return deployment
        if options.session:
            raise ConflictError(f"a session {wanted!r} is being submitted already", hint="choose another name")
        free = next(name for number in count(2) if (name := f"{wanted}-{number}") not in self._submitting)
        return msgspec.structs.replace(deployment, session=free)

    def cancel(self, session: str, reason: str) -> bool:
        """Prevent the start of a session that `submit` is deploying; return whether there is one."""
        if session not in self._submitting:
            return False
        text = f"session {session!r} was {CancelRequest(reason=reason).text} while it was deployed"
        self._submitting[session] = GoneError(text, hint="submit the graph again")
        return True

    def prepare(self, deployment: Deployment, *, seconds: float) -> Routine[None]:
        """Prepare the children of the nodes that the deployment names. After an error, the caller has to undo it.

        Raises
        ------
        LinkError
            A node is unknown, or does not answer.
        DropflowError
            A child failed: its error, naming it.
        """
        targets = yield from self._targets(deployment.nodes)
        self._prepared[deployment.session, deployment.epoch] = _PreparedNodes(
            frozenset(node for target in targets for node in target.nodes), deployment.is_continuation
        )
        # Shorter than the timeout of the caller, so that the answer names the children that were late.
        outcomes = yield from self._prepare(deployment, targets, seconds * 0.9)
        errors = _errors(targets, outcomes)
        if errors:
            raise merge_errors(errors, f"could not prepare session {deployment.session!r}", _roles(targets))

    def start(self, session: str, epoch: int) -> Routine[None]:
        """Start the children that were prepared.

        Raises
        ------
        NotFoundError
            No child was prepared.
        DropflowError
            A child failed: its error, naming it.
        """
        prepared = self._prepared.get((session, epoch))
        if prepared is None:
            targets = self._all_targets()
        else:
            targets = yield from self._targets(prepared.nodes)
        outcomes = yield from self._call(
            targets, partial(Manager.start, session=session, epoch=epoch), _SESSION_START_SECONDS
        )
        errors = _errors(targets, outcomes)
        if prepared is None:
            # After a restart we do not know which children were prepared, so NotFound is not an error.
            errors = {name: error for name, error in errors.items() if not isinstance(error, NotFoundError)}
            if not errors and all(outcome.error is not None for outcome in outcomes.values()):
                raise NotFoundError(f"session {session!r} was not prepared", hint="submit the graph again")
        if errors:
            raise merge_errors(errors, f"could not start session {session!r}", _roles(targets))

    def undo(self, session: str, epoch: int, reason: str) -> Routine[None]:
        """Undo a deployment on all children that may have it.

        Raises
        ------
        DropflowError
            Children could not undo it: the error of one of them, naming all.
        """
        prepared = self._prepared.pop((session, epoch), None)
        if prepared is None:
            targets = self._all_targets()
        else:
            targets = yield from self._targets(prepared.nodes, strict=False)
        self.note_undone(session, reason)
        undo = partial(Manager.undo, session=session, epoch=epoch, reason=reason)
        outcomes = yield from self._call(targets, undo, _UNDO_SECONDS)
        # After a restart it is unknown whether the session had contents before, so they stay.
        self._undo_silent(session, epoch, outcomes, is_first=prepared is not None and not prepared.is_continuation)
        errors = _errors(targets, outcomes)
        wrong = {name: error for name, error in errors.items() if not isinstance(error, NotFoundError)}
        if wrong:
            raise merge_errors(wrong, f"could not undo session {session!r}")

    def note_undone(self, session: str, why: str) -> None:
        """Note why a session was not started. This is the answer if it is looked up later."""
        self._undone[session] = why

    def _silence(self, outcomes: Mapping[str, Outcome]) -> None:
        """Send no requests to unreachable children until they answer. The error of an island may be that of a node."""
        views = self._shared.children.by_url()
        for url, outcome in outcomes.items():
            is_own = outcome.late or (url in views and views[url].role == "node")
            if is_own and isinstance(outcome.error, LinkError) and not isinstance(outcome.error, RestartedError):
                self._shared.children.silence(url, outcome.error.text)

    def _undo_silent(self, session: str, epoch: int, outcomes: Mapping[str, Outcome], *, is_first: bool) -> None:
        """Remove a deployment later on the children that did not answer: their processes may only be paused.

        Only a first deployment is removed. A later one continues a session, whose contents stay; a node gives it up
        itself.
        """
        for url, outcome in outcomes.items():
            if is_first and isinstance(outcome.error, LinkError):
                self._undo_later(session, url, epoch)

    def fresh_nodes(self) -> Routine[tuple[NodeInfo, ...]]:
        """Return all nodes below, asked for now: a node that was started again has another incarnation."""
        yield from self._shared.requests.settle()
        yield from self._shared.requests.ask_again(_AGAIN_SECONDS)
        replies = yield from self._shared.requests.ask_all(partial(Manager.nodes))
        for view, nodes in replies.values:
            self._shared.children.update_nodes(view.url, nodes)
        return self._present_nodes()

    def _present_nodes(self) -> tuple[NodeInfo, ...]:
        """Return all nodes below; a node is suspect at once if its manager has not answered when it was asked again."""
        views = self._shared.children.views()
        silent = {name: view.text for name, view in children_by_node(views).items() if not view.is_asked}
        return tuple(
            msgspec.structs.replace(node, state="suspect", text=silent[node.name])
            if node.state == "alive" and node.name in silent
            else node
            for node in nodes_of(views, role=self._shared.role)
        )

    def _deploy(self, deployment: Deployment) -> Routine[None]:
        """Prepare all children, then start all.

        Raises
        ------
        DropflowError
            The error of a child that failed, naming all failed children. Nothing runs then, except on children that
            could not undo it. They are named too.
        """
        targets = yield from self._targets(deployment.nodes)
        seconds = deployment.seconds(self._deploy_seconds)
        deadline = self._shared.time.now + seconds
        session, epoch = deployment.session, deployment.epoch
        step, outcomes = "prepare", (yield from self._prepare(deployment, targets, seconds))
        cancelled = self._submitting[session]
        if not cancelled and not _errors(targets, outcomes):
            left = max(deadline - self._shared.time.now, 1.0)
            start = partial(Manager.start, session=session, epoch=epoch)
            step, outcomes = "start", (yield from self._call(targets, start, left))
            cancelled = self._submitting[session]
        errors = _errors(targets, outcomes)
        if not errors and not cancelled:
            return
        error = cancelled or merge_errors(errors, f"could not {step} session {session!r}", _roles(targets))
        self._shared.witness.forget(session, epoch)
        self._shared.log(f"session {session!r} is undone everywhere: {error}")
        self.note_undone(session, str(error))
        undo = partial(Manager.undo, session=session, epoch=epoch, reason=str(error))
        outcomes = yield from self._call(targets, undo, _UNDO_SECONDS)
        self._undo_silent(session, epoch, outcomes, is_first=not deployment.is_continuation)
        stuck = {name: why for name, why in _errors(targets, outcomes).items() if name not in errors}
        undone = ", ".join(target.view.name for target in targets if target.view.name not in stuck)
        error.add_note(f"undone on {undone}")
        if stuck:
            names = ", ".join(f"{name} ({why.text})" for name, why in stuck.items())
            error.hint = f"{error.hint}; it could not be undone on {names}: delete the session there".lstrip("; ")
        raise error

    def _prepare(
        self, deployment: Deployment, targets: Iterable[_Target], seconds: float
    ) -> Routine[dict[str, Outcome]]:
        deployments = ((target, msgspec.structs.replace(deployment, nodes=target.nodes)) for target in targets)
        questions = tuple(
            Question(target.view.url, partial(Manager.prepare, deployment=each, seconds=seconds))
            for target, each in deployments
        )
        outcomes: dict[str, Outcome] = yield Gather(questions, seconds, grace=_GRACE)
        self._silence(outcomes)
        return outcomes

    def _call(self, targets: Iterable[_Target], call: partial[None], seconds: float) -> Routine[dict[str, Outcome]]:
        questions = tuple(Question(target.view.url, call) for target in targets)
        outcomes: dict[str, Outcome] = yield Gather(questions, seconds)
        self._silence(outcomes)
        return outcomes

    def _all_targets(self) -> list[_Target]:
        views = [view for view in self._shared.children.views() if view.is_asked]
        return [_Target(view, tuple(node.name for node in view.nodes)) for view in views]

    def _targets(self, nodes: Iterable[str], *, strict: bool = True) -> Routine[list[_Target]]:
        """Return the children through which these nodes are reached.

        Parameters
        ----------
        strict : bool
            Whether it is an error if a node is not known or does not answer.
        """
        wanted = sorted(nodes)
        yield from self._shared.requests.settle()
        by_node = children_by_node(self._shared.children.views())
        if strict:
            urls = {by_node[node].url for node in wanted if node in by_node}
            yield from self._shared.requests.wait_for_silent(urls)
            by_node = children_by_node(self._shared.children.views())
        wrong: dict[str, DropflowError] = {}
        by_url: dict[str, tuple[ChildView, list[str]]] = {}
        for node in wanted:
            view = by_node.get(node)
            if view is None:
                wrong[node] = LinkError("it is unknown", hint="is its manager running, and a child of this one?")
            elif strict and not view.is_asked:
                wrong[node] = LinkError(view.text, hint=f"see whether {view.name} runs at {view.url}")
            else:
                by_url.setdefault(view.url, (view, []))[1].append(node)
        if strict and wrong:
            raise merge_errors(wrong, "cannot be reached")
        return [_Target(view, tuple(names)) for view, names in by_url.values()]


def merge_errors(
    errors: Mapping[str, DropflowError], what: str, roles: Mapping[str, str] | None = None
) -> DropflowError:
    """Return one error for the errors of several children: of the class of the first error, naming all children.

    Parameters
    ----------
    errors : mapping
        Errors by the name of the child; at least one. Errors that another try does not mend come first.
    what : str
        Text after the name of each child: what it could not do.
    roles : mapping, optional
        The role of each child, to be put before its name.
    """
    ordered = sorted(errors.items(), key=lambda item: (item[1].retryable, item[0]))
    name, first = ordered[0]
    same = [other for other, error in ordered[1:] if error.text == first.text]
    others = [f"{other}: {error.text}" for other, error in ordered[1:] if other not in same]
    if same:
        others.insert(0, f"the same at {', '.join(same)}")
    role = "" if roles is None else f"{roles[name]} "
    text = "; ".join([f"{role}{name} {what}: {first.text}", *others])
    hint = first.hint or (f"look at the log of {name}, and submit again" if first.retryable else "")
    if isinstance(first, StorageError) and role == "node ":
        hint += f"; to leave the node out: dropflow drain {name}"
    where = f"{name}: {first.where}" if first.where else name
    if isinstance(first, BadGraphError):
        all_problems = [problem for _, each in ordered if isinstance(each, BadGraphError) for problem in each.problems]
        problems = tuple(problem for number, problem in enumerate(all_problems) if problem not in all_problems[:number])
        error: DropflowError = BadGraphError(text, problems=problems, where=where, hint=hint)
    elif isinstance(first, HttpError):
        # The HTTP status of a child is not passed on: 401 there does not mean that our caller lacks a token.
        error = WorldError(text, where=where, hint=hint)
    else:
        error = type(first)(text, where=where, hint=hint)
    error.__cause__ = first
    return error


def _without_full_disk(node: NodeInfo) -> NodeInfo:
    """Return a node as a plan is to see it: one without space on its disk gets nothing, as if it did not answer."""
    if node.state != "alive" or not node.load.is_disk_full:
        return node
    return msgspec.structs.replace(node, state="suspect", text="its disk is full")


def _roles(targets: Iterable[_Target]) -> dict[str, str]:
    return {target.view.name: target.view.role for target in targets}


def _errors(targets: Iterable[_Target], outcomes: Mapping[str, Outcome]) -> dict[str, DropflowError]:
    """Return the errors by the name of the child."""
    return {
        target.view.name: error
        for target in targets
        if isinstance(error := outcomes[target.view.url].error, DropflowError)
    }
