"""``dropflow explain``: why a drop is in its state, from the journal of a run or from its node, or what made it."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from dropflow.api.records import DropDetail, FailureInfo
from dropflow.cli.exit_status import Exit
from dropflow.cli.option_types import ConnectionOptions, connection_options, drops, output_options, runs
from dropflow.cli.output import CommandOutput
from dropflow.errors import UsageError
from dropflow.failure import Failure
from dropflow.formatting import plural
from dropflow.states import DropState
from dropflow.web.cause_groups import causes

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from dropflow.api.client import Client
    from dropflow.graph.physical import PhysicalGraph

__all__ = ["chain_lines", "explain_command"]

_FIRST, _LAST = 6, 3
"""Drops of a long chain that are shown."""


class ExplainReply(msgspec.Struct, frozen=True, kw_only=True):
    """Why a drop is in its state; `session` is the state of the run, as far as its journal goes."""

    ok: bool = True
    session: str
    drop: str
    state: str
    reasons: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """The drop, then the reasons."""
        yield self.drop
        yield from (f"  {reason}" for reason in self.reasons)


@click.command("explain")
@output_options
@click.argument("run", metavar="RUN", shell_complete=runs)
@click.argument("drop", metavar="[DROP]", required=False, shell_complete=drops)
@click.option(
    "--origin", is_flag=True, help="Show what DROP was made from; without DROP, a signature of what RUN computed."
)
@click.option(
    "--offset", metavar="N", type=click.IntRange(min=0), default=0, help="With --origin: list drops from the N-th on."
)
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1, 1000),
    default=50,
    show_default=True,
    help="With --origin: list N drops at most.",
)
@connection_options
def explain_command(
    output: CommandOutput,
    *,
    manager: ConnectionOptions,
    run: str,
    drop: str | None,
    origin: bool,
    offset: int,
    limit: int,
) -> Exit:
    """Explain the state of DROP in RUN, the directory of a run or a session of a manager.

    DROP is a text id as reports show it, the end of one if only one drop ends so, or a name as pages show it: of a
    logical node with a single drop, or with its indices, such as 'Measure 3'. Of a drop that waits, the drops that it
    waits for are followed to one that waits for no other. In a directory the journal is
    replayed, so this works for runs that failed, were cancelled, were killed or still run. RUN is a session if there is
    no directory of a run with that name, or with --to.

    With --origin, the answer has the logical nodes upstream of DROP, back to the roots, with their parameters and
    attempts, and a page of the drops, the nearest first. Drops that failed or were skipped are among them. The
    signature of RUN has four levels: graph (components, links and indices), parameters, software, and contents (sizes
    and checksums of the results). Two sessions with the same digest at a level are the same there, whatever their
    nodes, plans and names are; 'dropflow diff' shows what differs.
    """
    if origin:
        from dropflow.api.records import PageQuery
        from dropflow.cli.reports import show_origin

        return show_origin(output, manager, run, drop, PageQuery(offset=offset, limit=limit))
    if drop is None:
        raise UsageError("the DROP to explain is missing", hint="name one, or use --origin for all of RUN")
    # 'dropflow fetch' makes a directory named after the session, which is not the directory of a run.
    here = manager.url is None and (Path(run, "journal.dfj").exists() or "/" in run)
    output.answer(_of_directory(Path(run), drop) if here else _of_session(manager, run, drop))
    return Exit.FINISHED


def _of_directory(directory: Path, drop: str) -> ExplainReply:
    import numpy as np

    from dropflow.engine.explain import explain, explain_repeat
    from dropflow.engine.journal import replay
    from dropflow.engine.statistics import cause_reports
    from dropflow.graph.codec import load
    from dropflow.graph.text_ids import find_drop, oid
    from dropflow.sessions.shown import failure_info

    graph = load(directory / "graph.dfg")
    replayed = replay(graph, directory / "journal.dfj")
    row = find_drop(graph, drop)
    found = explain(replayed.core, row, replayed.faults.get(row, ()))
    failure = None if found.cause is None else replayed.failures.get(found.cause)
    repeat = () if replayed.known is None else explain_repeat(graph, replayed.known, row)
    states = np.frombuffer(replayed.core.drops.states, dtype=np.uint8)
    chain = chain_lines(graph, row, states, lambda drop: explain(replayed.core, drop).lines[1:])
    reports = () if failure is None else cause_reports(graph, replayed.core, str(directory), replayed.failures)
    alike = () if found.cause is None else _alike([failure_info(one) for one in reports], oid(graph, found.cause))
    reasons = (*found.lines, *chain, *_failure_lines(failure), *alike, *repeat)
    return ExplainReply(session=replayed.core.status.name, drop=found.oid, state=found.state.name, reasons=reasons)


def _of_session(manager: ConnectionOptions, session: str, drop: str) -> ExplainReply:
    from dropflow.cli.connection import connect

    with connect(manager) as client:
        found = client.drop(session, drop)
        detail = client.session(session)
        chain = _chain_of_session(client, session, found)
    alike = () if found.failure is None else _alike(detail.failures, found.failure.drop)
    reasons = (*found.reasons, *chain, *_failure_lines(found.failure), *alike)
    return ExplainReply(session=detail.status, drop=found.oid, state=found.state, reasons=reasons)


def _chain_of_session(client: "Client", session: str, drop: DropDetail) -> tuple[str, ...]:
    """Return the lines about what a drop waits for; none if it does not wait for another one."""
    if DropState[drop.state].is_terminal or not drop.input_count:
        return ()
    import numpy as np

    from dropflow.graph.text_ids import oid

    graph = client.graph(session)
    known = client.states(session)
    states = np.zeros(graph.drops, dtype=np.uint8)
    states[known.rows] = known.values
    return chain_lines(
        graph, drop.drop, states, lambda row: client.drop(session, oid(graph, row)).reasons[1:], silent=known.missing
    )


def chain_lines(
    graph: "PhysicalGraph",
    drop: int,
    states: "npt.NDArray[np.uint8]",
    reasons: Callable[[int], Sequence[str]],
    *,
    silent: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return a line for each drop of the chain from `drop` to its root, and the reasons of the root.

    Parameters
    ----------
    graph : PhysicalGraph
        The whole graph.
    drop : int
        A row; the answer is empty unless it waits for another drop.
    states : array of uint8
        `DropState` of each drop.
    reasons : callable
        Returns why the root is not settled, by its row.
    silent : sequence of str
        Nodes that did not answer: their drops count as not settled.
    """
    from dropflow.graph.order import waiting_chain

    chain = waiting_chain(graph, drop, states).tolist() if states[drop] <= DropState.WRITING else [drop]
    if len(chain) == 1:
        return ()
    lines = [_line(graph, row, states) for row in chain[1:]]
    if len(lines) > _FIRST + _LAST + 1:
        between = len(lines) - _FIRST - _LAST
        lines[_FIRST:-_LAST] = [f"  and so on, over {between} more drops"]
    if silent:
        lines.append(f"  {', '.join(silent)} did not answer, so that drops there may be further than this")
    return ("down to the root, it waits for:", *lines, *(f"  it is not settled: {one}" for one in reasons(chain[-1])))


def _line(graph: "PhysicalGraph", row: int, states: "npt.NDArray[np.uint8]") -> str:
    from dropflow.graph.text_ids import oid

    node = f" on {graph.places[graph.part[row]]}" if graph.places else ""
    name = graph.templates[graph.template[row]].name
    return f"  {name} ({oid(graph, row)}){node} is {DropState(states[row]).name}"


def _failure_lines(failure: Failure | FailureInfo | None) -> tuple[str, ...]:
    """Return the error and the hint of the failure that put a drop in ERROR."""
    if failure is None:
        return ()
    return tuple(line for line in (f"{failure.code} {failure.text}".strip(), failure.hint) if line)


def _alike(failures: Sequence[FailureInfo], drop: str) -> tuple[str, ...]:
    """Return how many other drops failed as the root cause `drop` did."""
    groups = (group for group in causes(failures) if group.rest)
    found = next((group for group in groups if any(one.drop == drop for one in (group.first, *group.rest))), None)
    if found is None:
        return ()
    same = f": {found.text}" if found.is_varied else ""
    return (f"{plural(len(found.rest), 'other drop')} failed alike{same}",)
