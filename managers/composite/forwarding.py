"""Deployments on their way from a composite to its children: each gets the slices of its nodes, as they are."""

import threading
from collections.abc import Iterable
from dataclasses import replace

from dropflow.clock import Clock
from dropflow.errors import DropflowError, LinkError, NotFoundError
from dropflow.rest.schema import NodeInfo, Role
from managers.composite.asking import Asker
from managers.composite.children import Children, ChildView
from managers.composite.deploying import Target, deploy, failed, prepare_all, start_all, undo_all
from managers.composite.fanout import Fanout
from managers.composite.nodes import children_by_node, nodes_of
from managers.deployment import Deployment

__all__ = ["AGAIN_SECONDS", "Forwarding"]

AGAIN_SECONDS = 0.5
"""How long to wait for children that did not answer a moment ago."""

_REMEMBERED = 1000
_START_SECONDS = 30.0
_SILENT_SECONDS = 3.0


class Forwarding:
    """Passes deployments on.

    Between `prepare` and `start` it remembers which children were prepared, so that one that has forgotten is noticed;
    a composite that was started again in between asks all.
    """

    def __init__(self, role: Role, children: Children, asker: Asker, fanout: Fanout, clock: Clock) -> None:
        self._role: Role = role
        self._children = children
        self._asker = asker
        self._fanout = fanout
        self._clock = clock
        self._lock = threading.Lock()
        self._prepared: dict[tuple[str, int], frozenset[str]] = {}

    def nodes(self) -> tuple[NodeInfo, ...]:
        """All nodes below, asked for now: a node that was started again has another incarnation."""
        self._children.settle(2.0)
        self._children.ask_again(AGAIN_SECONDS)
        replies = self._asker.ask(lambda child: child.nodes())
        fresh = {view.url: nodes for view, nodes in replies.values}
        views = [replace(view, nodes=fresh[view.url]) if view.url in fresh else view for view in self._children.views()]
        return nodes_of(views, role=self._role)

    def deploy(self, deployment: Deployment, *, seconds: float) -> None:
        """Prepare everywhere, then start everywhere, or undo; see `managers.composite.deploying.deploy`."""
        deploy(deployment, self._targets(deployment.slices), self._fanout, seconds=seconds, clock=self._clock)

    def prepare(self, deployment: Deployment, *, seconds: float) -> None:
        """Prepare the children whose slices these are. Undoing what others did is up to who asked for it.

        Raises
        ------
        LinkError
            A slice is for a node that is not here, or that does not answer.
        DropflowError
            A child failed: its error, naming it.
        """
        targets = self._targets(deployment.slices)
        with self._lock:
            self._prepared[deployment.session, deployment.epoch] = frozenset(
                node for target in targets for node in target.nodes
            )
            while len(self._prepared) > _REMEMBERED:
                del self._prepared[next(iter(self._prepared))]
        # A little less than what whoever asked waits, so that it hears who was late.
        outcomes = prepare_all(deployment, targets, self._fanout, seconds=seconds * 0.9)
        errors = {name: outcome.error for name, outcome in outcomes.items() if outcome.error is not None}
        if errors:
            raise failed(errors, f"could not prepare session {deployment.session!r}")

    def start(self, session: str, epoch: int) -> None:
        """Start the children that were prepared.

        Raises
        ------
        NotFoundError
            None was.
        DropflowError
            A child failed: its error, naming it.
        """
        with self._lock:
            nodes = self._prepared.get((session, epoch))
        targets = self._everybody() if nodes is None else self._targets(nodes)
        outcomes = start_all(session, epoch, targets, self._fanout, seconds=_START_SECONDS)
        errors = {name: outcome.error for name, outcome in outcomes.items() if outcome.error is not None}
        if nodes is None:
            # Who was prepared is not known any more, so that those who were not are no failure.
            errors = {name: error for name, error in errors.items() if not isinstance(error, NotFoundError)}
            if not errors and all(outcome.error is not None for outcome in outcomes.values()):
                raise NotFoundError(f"session {session!r} was not prepared", hint="submit the graph again")
        if errors:
            raise failed(errors, f"could not start session {session!r}")

    def undo(self, session: str, epoch: int, reason: str) -> None:
        """Take a deployment back from all children that may have it.

        Raises
        ------
        DropflowError
            Children that could not: the error of one, naming all.
        """
        with self._lock:
            nodes = self._prepared.pop((session, epoch), None)
        targets = self._everybody() if nodes is None else self._targets(nodes, strict=False)
        errors = undo_all(session, epoch, targets, self._fanout, reason=reason)
        wrong = {name: error for name, error in errors.items() if not isinstance(error, NotFoundError)}
        if wrong:
            raise failed(wrong, f"could not undo session {session!r}")

    def _everybody(self) -> list[Target]:
        return [_target(view, [node.name for node in view.nodes]) for view in self._children.views() if view.is_asked]

    def _targets(self, nodes: Iterable[str], *, strict: bool = True) -> list[Target]:
        """The children by which these nodes are reached, each with its nodes."""
        wanted = sorted(nodes)
        self._children.settle(2.0)
        by_node = children_by_node(self._children.views())
        if strict:
            self._children.settle_silent({by_node[node].url for node in wanted if node in by_node}, _SILENT_SECONDS)
            by_node = children_by_node(self._children.views())
        wrong: dict[str, DropflowError] = {}
        found: dict[str, tuple[ChildView, list[str]]] = {}
        for node in wanted:
            view = by_node.get(node)
            if view is None:
                wrong[node] = LinkError("it is not known here", hint="is its manager running, and a child of this one?")
            elif strict and not view.is_asked:
                wrong[node] = LinkError(view.text, hint=f"see whether {view.name} runs at {view.url}")
            else:
                found.setdefault(view.url, (view, []))[1].append(node)
        if strict and wrong:
            raise failed(wrong, "cannot be reached")
        return [_target(view, names) for view, names in found.values()]


def _target(view: ChildView, nodes: Iterable[str]) -> Target:
    return Target(view.name, view.manager, tuple(nodes))
