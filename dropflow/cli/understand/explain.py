"""``dropflow explain``: why a drop is in its state, from the journal of a run or from its node, or what made it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from dropflow.api.drop_records import DropDetail, ResultInfo
from dropflow.api.session_records import FailureInfo
from dropflow.cli.candidates import drops, runs
from dropflow.cli.common_options import connection_options, output_options
from dropflow.cli.exit_status import Exit
from dropflow.cli.output import CommandOutput
from dropflow.cli.run_or_session import is_given, is_run_directory, refuse_without_run
from dropflow.cli.understand.origin import checksum_text, show_origin
from dropflow.errors import DropflowError, NoManagerError, NotFoundError, UsageError
from dropflow.failure import Failure
from dropflow.files import JOURNAL
from dropflow.formatting import few, format_size, plural
from dropflow.states import DropState
from dropflow.submission.options import ConnectionOptions
from dropflow.web.cause_groups import causes

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from dropflow.api.client import Client
    from dropflow.graph.physical import PhysicalGraph

_FIRST, _LAST = 6, 3
"""Drops of a long chain that are shown."""
_DEPTHS = (JOURNAL, f"*/{JOURNAL}", f"*/*/{JOURNAL}")
"""Patterns of journals below a directory, by which runs are found."""
_MOST_PARENTS = 4
"""Parent directories of a file that are searched for the run that made it."""


class ExplainReply(msgspec.Struct, frozen=True, kw_only=True):
    """Why a drop is in its state; `session` is the state of the run, as far as its journal goes."""

    ok: bool = True
    session: str
    drop: str
    state: str
    reasons: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """Yield the drop, then the reasons."""
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
@click.option(
    "--crate",
    metavar="DIR",
    help="Write a Workflow Run RO-Crate into DIR, which has the results: RUN itself, or what fetch wrote.",
)
@click.option(
    "--sign",
    is_flag=True,
    help="With --crate: sign it with the cluster key, or that of --key; 'dropflow keys verify DIR' checks it.",
)
@click.option(
    "--license", "license_", metavar="TEXT", default="", help="Of the results, for --crate: an address, or words."
)
@click.option(
    "--in",
    "places",
    metavar="DIR",
    multiple=True,
    type=click.Path(exists=True, file_okay=False),
    help="If RUN is a file: look for its run below DIR; by default here, beside the file, and at the manager.",
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
    crate: str | None,
    sign: bool,
    license_: str,
    places: tuple[str, ...],
) -> Exit:
    """Explain the state of DROP in RUN, the directory of a run or a session of a manager.

    DROP is a text id as reports show it, the end of one if only one drop ends so, or a name as pages show it: of a
    logical node with a single drop, or with its indices, such as 'Measure 3'. Of a drop that waits, the drops that it
    waits for are followed to one that waits for no other. In a directory the journal is replayed, so this works for
    runs that failed, were cancelled, were killed or still run. RUN is a session if there is no directory of a run with
    that name, or with --to.

    With --origin, the answer has the logical nodes upstream of DROP, back to the roots, with their parameters and
    attempts, and a page of the drops, the nearest first. Drops that failed or were skipped are among them. The
    signature of RUN has four levels: graph (components, links and indices), parameters, software, and contents (sizes
    and checksums of the results). Two sessions with the same digest at a level are the same there, whatever their
    nodes, plans and names are; 'dropflow diff' shows what differs.

    RUN can also be a file or directory that is a copy of a result. Its size and checksum find its run, or the session
    of a manager, and DROP is the one that it is.

    With --crate, the answer is what ro-crate-metadata.json in DIR has; exit status 1 if results are not there. What
    used and made each drop, where and when, is in provenance.json beside it, as W3C PROV.
    """
    if drop is None and crate is None and _is_copy(run):
        run, drop = _made_in(output, manager, Path(run), places)
    if sign and crate is None:
        raise UsageError("--sign is for a crate", where="--sign", hint="name its directory with --crate DIR")
    if crate is not None:
        from dropflow.cli.understand.crate import write_crate

        return write_crate(output, manager, run, Path(crate), license_, is_signed=sign)
    if origin:
        from dropflow.api.drop_records import PageQuery

        return show_origin(output, manager, run, drop, PageQuery(offset=offset, limit=limit))
    if drop is None:
        raise UsageError("the DROP to explain is missing", hint="name one, or use --origin for all of RUN")
    here = is_run_directory(run)
    refuse_without_run(run)
    output.answer(_of_directory(Path(run), drop) if here else _of_session(manager, run, drop))
    return Exit.FINISHED


def _is_copy(run: str) -> bool:
    """Return whether RUN is a content: a file, or a directory that is written as a path and is none of a run."""
    from dropflow.files import GRAPH_FILE

    path = Path(run)
    return path.is_file() or ("/" in run and path.is_dir() and not (path / GRAPH_FILE).exists())


def _made_in(output: CommandOutput, manager: ConnectionOptions, path: Path, places: Sequence[str]) -> tuple[str, str]:
    """Return the run or session, and the drop, whose result has the content of a file; the youngest, if several do.

    Raises
    ------
    NotFoundError
        None of those that are known has it.
    """
    from dropflow.data.storage_errors import checksum_of, tree_of
    from dropflow.sessions.report import run_report

    size, checksum = tree_of(str(path)) if path.is_dir() else (path.stat().st_size, checksum_of(str(path)))
    beside = () if is_given(click.get_current_context(), "url") else (Path(), *path.absolute().parents[:_MOST_PARENTS])
    roots = [Path(place) for place in places] or beside
    journals = {
        journal_path.resolve(): journal_path.stat().st_mtime
        for root in roots
        for depth in _DEPTHS
        for journal_path in root.glob(depth)
        if journal_path.exists()
    }
    origins: list[tuple[str, str]] = []
    for journal in sorted(journals, key=lambda journal_path: -journals[journal_path]):
        with suppress(DropflowError):  # a part of a node's, or a damaged one
            origins += _same(run_report(journal.parent).results.results, str(journal.parent), size, checksum)
    looked = [f"below {few([str(root.absolute()) for root in roots])}" if roots else "in no directory"]
    unanswered = ""
    if not origins and not places:
        try:
            with manager.connect() as client:
                for session in sorted(client.sessions(), key=lambda session: -session.created):
                    origins += _same(client.results(session.session).results, session.session, size, checksum)
            looked.append(f"at {manager.url or 'the manager'}")
        except NoManagerError:
            pass
        except DropflowError as error:
            unanswered = f"; the sessions of {manager.url or 'the manager'} could not be searched: {error.text}"
    if not origins:
        raise NotFoundError(
            f"no result has the content of {path}: {format_size(size)}, {checksum_text(checksum)}{unanswered}",
            where=str(path),
            hint=f"the search was {' and '.join(looked)}: name another place with --in DIR, or a manager with --to URL",
        )
    output.note(f"{path} is {origins[0][1]} of {origins[0][0]}: it has the same size and {checksum_text(checksum)}")
    if len(origins) > 1:
        output.note(f"the same content is in {few([run for run, _ in origins[1:]])}")
    return origins[0]


def _same(results: Iterable[ResultInfo], run: str, size: int, checksum: int) -> list[tuple[str, str]]:
    return [(run, result.oid) for result in results if (result.size, result.checksum) == (size, checksum)]


def _of_directory(directory: Path, drop: str) -> ExplainReply:
    import numpy as np

    from dropflow.execution.drop_explanation import explain, explain_repeat
    from dropflow.execution.journal import replay
    from dropflow.execution.statistics import cause_reports
    from dropflow.files import GRAPH_FILE, refuse_other_directory
    from dropflow.graph.codec import load
    from dropflow.graph.completeness import completeness_lines, missing_share
    from dropflow.graph.text_ids import find_drop, oid
    from dropflow.reuse.log import reuse_lines
    from dropflow.sessions.summaries import failure_info

    refuse_other_directory(directory)
    graph = load(directory / GRAPH_FILE)
    replayed = replay(graph, directory / JOURNAL)
    states = np.frombuffer(replayed.core.drops.states, dtype=np.uint8)
    row = find_drop(graph, drop, states)
    explanation = explain(replayed.core, row, replayed.faults.get(row, ()))
    failure = None if explanation.cause is None else replayed.failures.get(explanation.cause)
    repeat = () if replayed.known is None else explain_repeat(graph, replayed.known, row)
    chain = chain_lines(graph, row, states, lambda drop: explain(replayed.core, drop).lines[1:])
    reports = () if failure is None else cause_reports(graph, replayed.core, str(directory), replayed.failures)
    alike = (
        ()
        if explanation.cause is None
        else _alike([failure_info(report) for report in reports], oid(graph, explanation.cause))
    )
    reused = reuse_lines(graph, directory, row)
    lacks = completeness_lines(graph, row, states, missing_share(graph, row, states, replayed.missing))
    record = replayed.contents.get(row)
    content = None if record is None else record.in_directory(directory.absolute())
    files = _path_lines(content.location if content is not None and content.kind in ("file", "directory") else "")
    reasons = (*explanation.lines, *files, *chain, *lacks, *_failure_lines(failure), *alike, *(reused or repeat))
    return ExplainReply(
        session=replayed.core.status.name, drop=explanation.oid, state=explanation.state.name, reasons=reasons
    )


def _of_session(manager: ConnectionOptions, session: str, drop: str) -> ExplainReply:
    with manager.connect() as client:
        detail = client.session(session)
        try:
            info = client.drop(session, drop)
        except NotFoundError:
            from dropflow.graph.text_ids import find_drop

            find_drop(client.graph(session), drop)  # whose error has the names that are near
            raise
        lines = _lines_of_graph(client, session, info)
    alike = () if info.failure is None else _alike(detail.failures, info.failure.drop)
    reasons = (*info.reasons, *_path_lines(info.path), *lines, *_failure_lines(info.failure), *alike)
    return ExplainReply(session=detail.status, drop=info.oid, state=info.state, reasons=reasons)


def _lines_of_graph(client: "Client", session: str, drop: DropDetail) -> Sequence[str]:
    """Return the lines about what a drop waits for, or lacks; none if it does neither."""
    is_over = DropState[drop.state].is_terminal
    if not drop.input_count or (is_over and not drop.missing):
        return ()
    import numpy as np

    from dropflow.graph.completeness import completeness_lines
    from dropflow.graph.text_ids import oid

    graph = client.graph(session)
    known = client.states(session)
    states = np.zeros(graph.drops, dtype=np.uint8)
    states[known.rows] = known.values
    if is_over:
        return completeness_lines(graph, drop.drop, states, drop.missing)
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
    return (
        "down to the root, it waits for:",
        *lines,
        *(f"  it is not settled: {reason}" for reason in reasons(chain[-1])),
    )


def _line(graph: "PhysicalGraph", row: int, states: "npt.NDArray[np.uint8]") -> str:
    from dropflow.graph.text_ids import oid

    node = f" on {graph.places[graph.part[row]]}" if graph.places else ""
    name = graph.templates[graph.template[row]].name
    return f"  {name} ({oid(graph, row)}){node} is {DropState(states[row]).name}"


def _path_lines(path: str) -> tuple[str, ...]:
    return (f"its content is {path}",) if path else ()


def _failure_lines(failure: Failure | FailureInfo | None) -> tuple[str, ...]:
    """Return the error, the hint and the inputs of the failure that put a drop in ERROR."""
    if failure is None:
        return ()
    lines = (f"{failure.code} {failure.text}".strip(), failure.hint, *(f"with {line}" for line in failure.inputs))
    return tuple(line for line in lines if line)


def _alike(failures: Sequence[FailureInfo], drop: str) -> tuple[str, ...]:
    """Return how many other drops failed as the root cause `drop` did."""
    groups = (group for group in causes(failures) if group.rest)
    alike = next(
        (group for group in groups if any(failure.drop == drop for failure in (group.first, *group.rest))), None
    )
    if alike is None:
        return ()
    same = f": {alike.text}" if alike.is_varied else ""
    return (f"{plural(len(alike.rest), 'other drop')} failed alike{same}",)
