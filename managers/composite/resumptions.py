"""Continues stopped sessions: collects the contents on their nodes, plans, and deploys again."""

from collections.abc import Sequence
from functools import partial

import msgspec

from dropflow.api.manager import Manager
from dropflow.api.requests import ResumeRequest
from dropflow.errors import DropflowError, GoneError, RestartedError
from dropflow.graph.physical import PhysicalGraph
from managers.composite.deployments import REPLAN_PAUSE_SECONDS, REPLAN_SECONDS, Deployments
from managers.composite.routines import PlanResumption, Routine, Until
from managers.composite.shared import Shared
from managers.recovery.records import StoppedPart
from managers.recovery.resume import newest_holders

_READ_SECONDS = 600.0
"""Seconds that nodes may take to compare their contents with their journals."""
_decoder = msgspec.msgpack.Decoder(StoppedPart)


class Resumptions:
    """Routines that continue sessions."""

    def __init__(self, shared: Shared, deployments: Deployments) -> None:
        self._shared = shared
        self._deployments = deployments

    def remains(self, session: str, *, ignore_damage: bool) -> Routine[tuple[bytes, ...]]:
        """Return the parts of a session on all nodes below.

        Raises
        ------
        NotFoundError, LinkError
            No node has the session, or no node that has it answers.
        """
        replies = yield from self._shared.requests.ask_all(
            partial(Manager.remains, session=session, ignore_damage=ignore_damage), _READ_SECONDS
        )
        replies.raise_unless_answered(f"session {session!r}")
        return tuple(part for _, parts in replies.values for part in parts)

    def resume(self, session: str, request: ResumeRequest, *, after: int) -> Routine[None]:
        """Continue a session that is over, or try its failed drops again.

        Parameters
        ----------
        after : int
            Newest epoch of the session that is known.

        Raises
        ------
        DropflowError
            See `dropflow.api.manager.Manager.resume` and `retry`.
        """
        deadline = self._shared.time.now + REPLAN_SECONDS
        while True:
            # Nodes that were started again a moment ago are asked for their parts, too.
            nodes = yield from self._deployments.fresh_nodes()
            encoded = yield from self.remains(session, ignore_damage=request.ignore_damage)
            parts = tuple(_decoder.decode(part) for part in encoded)
            graph = yield from self._graph(session, newest_holders(session, parts))
            planned = yield PlanResumption(graph, parts, request, nodes, after, self._shared.witness.place)
            if planned.error is not None:
                raise planned.error
            try:
                yield from self._deployments.deploy(planned.value)
            except RestartedError:
                if self._shared.time.now > deadline:
                    raise
                yield Until(lambda: False, REPLAN_PAUSE_SECONDS)
            else:
                return

    def _graph(self, session: str, nodes: Sequence[str]) -> Routine[PhysicalGraph]:
        """Return the graph of a session from the first of these nodes that can read it.

        Raises
        ------
        GoneError
            No node can read it.
        """
        findings = []
        for node in nodes:
            url = yield from self._deployments.url_of(node)
            try:
                graph = yield from self._shared.requests.ask_one(
                    url, partial(Manager.graph, session=session), _READ_SECONDS
                )
            except DropflowError as error:
                findings.append(f"{node}: {error.text}")
            else:
                return graph
        raise GoneError(
            f"session {session!r} cannot be continued: its graph cannot be read ({'; '.join(findings)})",
            hint="put the graph.dfg of the session back, or submit the graph again",
        )
