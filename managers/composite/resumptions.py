"""Continuing sessions that were stopped: gather what their nodes have, plan, and deploy again."""

from collections.abc import Sequence

import msgspec

from dropflow.errors import GoneError, RestartedError
from dropflow.graph.physical import PhysicalGraph
from dropflow.rest.operation_records import ResumeRequest
from managers.composite.deployments import Deployments
from managers.composite.machine_time import MachineTime
from managers.composite.requests import Requests
from managers.composite.waiting_operations import Gather, PlanResumption, Question, Routine, Until
from managers.composite.witness import Witness
from managers.recovery.resumption_plan import newest_holders
from managers.recovery.stopped_part import StoppedPart

__all__ = ["Resumptions"]

_READ_SECONDS = 600.0
"""How long nodes may take to compare the contents that they have with their journals."""
_REPLAN_SECONDS = 5.0
_REPLAN_PAUSE = 0.2

_decoder = msgspec.msgpack.Decoder(StoppedPart)


class Resumptions:
    """Routines that continue sessions."""

    def __init__(self, requests: Requests, deployments: Deployments, time: MachineTime, witness: Witness) -> None:
        self._requests = requests
        self._deployments = deployments
        self._time = time
        self._witness = witness

    def remains(self, session: str, *, ignore_damage: bool) -> Routine[tuple[bytes, ...]]:
        """Return what all nodes below have of a session.

        Raises
        ------
        NotFoundError, LinkError
            No node has it, or none that answers.
        """
        replies = yield from self._requests.ask_all(
            "remains", seconds=_READ_SECONDS, session=session, ignore_damage=ignore_damage
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
            See `managers.api.Manager.resume` and `retry`.
        """
        deadline = self._time.now + _REPLAN_SECONDS
        while True:
            encoded = yield from self.remains(session, ignore_damage=request.ignore_damage)
            parts = tuple(_decoder.decode(part) for part in encoded)
            graph = yield from self._graph(session, newest_holders(session, parts))
            nodes = yield from self._deployments.fresh_nodes()
            planned = yield PlanResumption(graph, parts, request, nodes, after, self._witness.place)
            if planned.error is not None:
                raise planned.error
            try:
                yield from self._deployments.deploy(planned.value)
            except RestartedError:
                if self._time.now > deadline:
                    raise
                yield Until(lambda: False, _REPLAN_PAUSE)
            else:
                return

    def _graph(self, session: str, nodes: Sequence[str]) -> Routine[PhysicalGraph]:
        """Return the graph of a session from the first of these nodes that can read it.

        Raises
        ------
        GoneError
            None can.
        """
        findings = []
        for node in nodes:
            url = yield from self._deployments.url_of(node)
            outcomes = yield Gather((Question(url, "graph", {"session": session}),), _READ_SECONDS)
            outcome = outcomes[url]
            if outcome.error is None:
                graph: PhysicalGraph = outcome.value
                return graph
            findings.append(f"{node}: {outcome.error.text}")
        raise GoneError(
            f"session {session!r} cannot be continued: its graph cannot be read ({'; '.join(findings)})",
            hint="put the graph.dfg of the session back, or submit the graph again",
        )
