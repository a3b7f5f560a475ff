"""``dropflow explain``: why a drop is in its state, from the journal of a run or from its node, or what made it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from dropflow.api.records import DropDetail, FailureInfo, ResultInfo
from dropflow.cli.candidates import drops, is_run_directory, runs
from dropflow.cli.common_options import connection_options, output_options
from dropflow.cli.exit_status import Exit
from dropflow.cli.graph_options import refuse_without_run
from dropflow.cli.manager_options import ConnectionOptions
from dropflow.cli.output import CommandOutput
from dropflow.cli.progress import columns
from dropflow.errors import DropflowError, NotFoundError, UsageError
from dropflow.failure import Failure
from dropflow.formatting import few, format_brief, format_size, format_time, plural, single_line
from dropflow.graph.drop_counts import failed_words
from dropflow.states import DropState
from dropflow.web.cause_groups import causes

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from dropflow.api.client import Client
    from dropflow.api.records import PageQuery
    from dropflow.cli.divergence import Divergence
    from dropflow.graph.differences import Difference
    from dropflow.graph.physical import PhysicalGraph
    from dropflow.web.comparison import Comparison
    from dropflow.web.origin import Origin, OriginDrop
    from dropflow.web.report import SessionReport
    from dropflow.web.signature import SessionSignature

_FIRST, _LAST = 6, 3
"""Drops of a long chain that are shown."""
_DEPTHS = ("journal.dfj", "*/journal.dfj", "*/*/journal.dfj")
"""Where runs are looked for, below a directory."""
_MOST_PARENTS = 4


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
    waits for are followed to one that waits for no other. In a directory the journal is
    replayed, so this works for runs that failed, were cancelled, were killed or still run. RUN is a session if there is
    no directory of a run with that name, or with --to.

    With --origin, the answer has the logical nodes upstream of DROP, back to the roots, with their parameters and
    attempts, and a page of the drops, the nearest first. Drops that failed or were skipped are among them. The
    signature of RUN has four levels: graph (components, links and indices), parameters, software, and contents (sizes
    and checksums of the results). Two sessions with the same digest at a level are the same there, whatever their
    nodes, plans and names are; 'dropflow diff' shows what differs.

    RUN can also be a file or directory that is a copy of a result. Its size and checksum find its
    run, or the session of a manager, and DROP is the one that it is.

    With --crate, the answer is what ro-crate-metadata.json in DIR has; exit status 1 if results are not there. What
    used and made each drop, where and when, is in provenance.json beside it, as W3C PROV.
    """
    if drop is None and crate is None and _is_copy(run):
        run, drop = _made_in(output, manager, Path(run), places)
    if sign and crate is None:
        raise UsageError("--sign is for a crate", where="--sign", hint="name its directory with --crate DIR")
    if crate is not None:
        return _write_crate(output, manager, run, Path(crate), license_, is_signed=sign)
    if origin:
        from dropflow.api.records import PageQuery

        return show_origin(output, manager, run, drop, PageQuery(offset=offset, limit=limit))
    if drop is None:
        raise UsageError("the DROP to explain is missing", hint="name one, or use --origin for all of RUN")
    here = is_run_directory(run, has_url=manager.url is not None)
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
    beside = () if manager.url else (Path(), *path.absolute().parents[:_MOST_PARENTS])
    roots = [Path(place) for place in places] or beside
    journals = {
        one.resolve(): one.stat().st_mtime
        for root in roots
        for depth in _DEPTHS
        for one in root.glob(depth)
        if one.exists()
    }
    found: list[tuple[str, str]] = []
    for journal in sorted(journals, key=lambda one: -journals[one]):
        with suppress(DropflowError):  # a part of a node's, or a damaged one
            found += _same(run_report(journal.parent).results.results, str(journal.parent), size, checksum)
    if not found and not places:
        with suppress(DropflowError), manager.connect() as client:
            for one in sorted(client.sessions(), key=lambda one: -one.created):
                found += _same(client.results(one.session).results, one.session, size, checksum)
    if not found:
        where = few([str(root) for root in roots]) or manager.url
        raise NotFoundError(
            f"no result has the content of {path}: {format_size(size)}, {_checksum(checksum)}",
            where=str(path),
            hint=f"runs were looked for below {where}: name another place with --in DIR, or a manager with --to URL",
        )
    output.note(f"{path} is {found[0][1]} of {found[0][0]}: it has the same size and {_checksum(checksum)}")
    if len(found) > 1:
        output.note(f"the same content is in {few([run for run, _ in found[1:]])}")
    return found[0]


def _same(results: Iterable[ResultInfo], run: str, size: int, checksum: int) -> list[tuple[str, str]]:
    return [(run, one.oid) for one in results if (one.size, one.checksum) == (size, checksum)]


def _of_directory(directory: Path, drop: str) -> ExplainReply:
    import numpy as np

    from dropflow.engine.explain import explain, explain_repeat
    from dropflow.engine.journal import replay
    from dropflow.engine.statistics import cause_reports
    from dropflow.files import GRAPH_FILE, refuse_other_directory
    from dropflow.graph.codec import load
    from dropflow.graph.completeness import completeness_lines, missing_share
    from dropflow.graph.text_ids import find_drop, oid
    from dropflow.reuse.log import reuse_lines
    from dropflow.sessions.shown import failure_info

    refuse_other_directory(directory)
    graph = load(directory / GRAPH_FILE)
    replayed = replay(graph, directory / "journal.dfj")
    row = find_drop(graph, drop)
    found = explain(replayed.core, row, replayed.faults.get(row, ()))
    failure = None if found.cause is None else replayed.failures.get(found.cause)
    repeat = () if replayed.known is None else explain_repeat(graph, replayed.known, row)
    states = np.frombuffer(replayed.core.drops.states, dtype=np.uint8)
    chain = chain_lines(graph, row, states, lambda drop: explain(replayed.core, drop).lines[1:])
    reports = () if failure is None else cause_reports(graph, replayed.core, str(directory), replayed.failures)
    alike = () if found.cause is None else _alike([failure_info(one) for one in reports], oid(graph, found.cause))
    reused = reuse_lines(graph, directory, row)
    lacks = completeness_lines(graph, row, states, missing_share(graph, row, states, replayed.missing))
    reasons = (*found.lines, *chain, *lacks, *_failure_lines(failure), *alike, *(reused or repeat))
    return ExplainReply(session=replayed.core.status.name, drop=found.oid, state=found.state.name, reasons=reasons)


def _of_session(manager: ConnectionOptions, session: str, drop: str) -> ExplainReply:
    with manager.connect() as client:
        found = client.drop(session, drop)
        detail = client.session(session)
        lines = _lines_of_graph(client, session, found)
    alike = () if found.failure is None else _alike(detail.failures, found.failure.drop)
    reasons = (*found.reasons, *lines, *_failure_lines(found.failure), *alike)
    return ExplainReply(session=detail.status, drop=found.oid, state=found.state, reasons=reasons)


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
    return ("down to the root, it waits for:", *lines, *(f"  it is not settled: {one}" for one in reasons(chain[-1])))


def _line(graph: "PhysicalGraph", row: int, states: "npt.NDArray[np.uint8]") -> str:
    from dropflow.graph.text_ids import oid

    node = f" on {graph.places[graph.part[row]]}" if graph.places else ""
    name = graph.templates[graph.template[row]].name
    return f"  {name} ({oid(graph, row)}){node} is {DropState(states[row]).name}"


def _failure_lines(failure: Failure | FailureInfo | None) -> tuple[str, ...]:
    """Return the error, the hint and the inputs of the failure that put a drop in ERROR."""
    if failure is None:
        return ()
    lines = (f"{failure.code} {failure.text}".strip(), failure.hint, *(f"with {line}" for line in failure.inputs))
    return tuple(line for line in lines if line)


def _alike(failures: Sequence[FailureInfo], drop: str) -> tuple[str, ...]:
    """Return how many other drops failed as the root cause `drop` did."""
    groups = (group for group in causes(failures) if group.rest)
    found = next((group for group in groups if any(one.drop == drop for one in (group.first, *group.rest))), None)
    if found is None:
        return ()
    same = f": {found.text}" if found.is_varied else ""
    return (f"{plural(len(found.rest), 'other drop')} failed alike{same}",)


# What runs and sessions have computed, for ``dropflow diff`` and ``dropflow explain --origin``.


def _report_of(
    manager: ConnectionOptions, run: str, *, other_url: str | None = None, has_states: bool = False
) -> "SessionReport":
    """Return the report, with results, of the directory of a run, or of a session.

    Parameters
    ----------
    manager : ConnectionOptions
        Names the manager.
    run : str
        A directory if it is written as a path, or if no address is given and there is a run of that name.
    other_url : str, optional
        The manager of the session, if it is another one.
    has_states : bool
        Whether the states of the drops of a session are read, too.

    Raises
    ------
    NotFoundError
        There is no such run or session.
    DropflowError
        It cannot be read, or the manager cannot be reached.
    """
    if is_run_directory(run, has_url=bool(other_url or manager.url)):
        from dropflow.sessions.report import run_report

        return run_report(Path(run))
    from dropflow.cli.connection import connect_to, manager_url
    from dropflow.web.report import session_report

    url = manager_url(manager if other_url is None else ConnectionOptions(url=other_url))
    if other_url is not None and manager.url is None:  # the token is for the manager of the options
        manager = ConnectionOptions(key=manager.key)
    with connect_to(url, manager) as client:
        return session_report(client, run, has_results=True, has_states=has_states)


_SHOWN = 25
_WIDE = 60


class CompareReply(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between two sessions."""

    ok: bool = True
    same_graph: bool
    comparison: "Comparison"
    divergences: "tuple[Divergence, ...]" = ()
    all_divergences: int = 0

    def lines(self) -> Iterator[str]:
        """Both sessions, what differs in their graphs and settings, totals, times by logical node, and causes."""
        found = self.comparison
        for number, one in (("first", found.first), ("second", found.second)):
            begun = f", begun {format_time(one.started)}" if one.started else ""
            drops = f"{plural(one.drops, 'drop')}, {failed_words(one.counts)}"
            yield f"{number}: {one.session}, {one.status.lower()}{begun}: {drops}"
        yield from (f"note: {text}" for text in found.warnings)
        yield found.verdict
        yield from _level_lines(found)
        for number, one in (("first", found.first), ("second", found.second)):
            if found.levels.contents == "unknown" and one.signature.contents_note:
                yield f"  contents of the {number}: {one.signature.contents_note}"
        if self.divergences:
            yield "Contents diverge first at:"
        for drop in self.divergences:
            yield from _divergence_lines(drop)
        if self.all_divergences > len(self.divergences):
            yield f"  and at {self.all_divergences - len(self.divergences):,} more"
        for title, listed in found.parts:
            yield f"{title}:"
            rows = [
                (_short(one.subject), _short(one.what), *_sides(one), _times(one.ratio)) for one in listed.rows[:_SHOWN]
            ]
            yield from columns(
                rows, header=("", "", "first", "second", "ratio" if any(row[-1] for row in rows) else "")
            )
            if listed.total > len(rows):
                yield f"  {listed.total - len(rows):,} more; --output json has them"


def _level_lines(found: "Comparison") -> Iterator[str]:
    yield from (f"  {level}: {state}" for level, state in msgspec.structs.asdict(found.levels).items())
    yield from (f"  {state} in DALiuGE's modes {modes}" for state, modes in found.modes_by_state.items())


def _divergence_lines(drop: "Divergence") -> Iterator[str]:
    yield f"  {drop.drop}: {drop.left} / {drop.right}"
    yield from (f"    {line}" for line in drop.how)
    if not drop.upstream:
        yield "    upstream of it, nothing differs that is recorded: it may depend on time, chance, or a module or file"
    for one in drop.upstream:
        yield f"    upstream: {one.subject}, {one.what}: {' / '.join(_sides(one))}"


def _short(text: str) -> str:
    return single_line(text, _WIDE)


def _sides(one: "Difference") -> tuple[str, str]:
    from dropflow.web.comparison import spelled

    return _short(spelled(one.left, one.unit)), _short(spelled(one.right, one.unit))


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"x {ratio:.2f}"


def compare(output: CommandOutput, manager: ConnectionOptions, first: str, second: str, other_url: str | None) -> Exit:
    """Answer with what differs between two runs or sessions; the other one may be at another manager."""
    from dropflow.cli.divergence import divergences
    from dropflow.graph.differences import graph_differences
    from dropflow.web.comparison import comparison_of

    reports = _report_of(manager, first), _report_of(manager, second, other_url=other_url)
    found = comparison_of(*reports)
    places = (
        Path(run) if is_run_directory(run, has_url=bool(url or manager.url)) else None
        for run, url in ((first, None), (second, other_url))
    )
    one, two = zip(reports, places, strict=True)
    begin, total = divergences(one, two, graph_differences(reports[0].graph, reports[1].graph))
    output.answer(
        CompareReply(same_graph=found.is_same_graph, comparison=found, divergences=begin, all_divergences=total)
    )
    return Exit.FINISHED if found.is_same_graph else Exit.FAILED


class SignatureReply(msgspec.Struct, frozen=True, kw_only=True):
    """What a session computed."""

    ok: bool = True
    run: str
    signature: "SessionSignature"

    def lines(self) -> Iterator[str]:
        """One line for each level."""
        found = self.signature
        yield self.run
        if found.repository is not None:
            yield f"  repository  {found.repository.address}"
            yield f"  commit      {found.repository.commit}, file {found.repository.digest}"
        yield f"  graph       {found.graph}"
        yield f"  parameters  {found.parameters}"
        yield f"  software    {_software(found.software)}"
        yield f"  contents    {found.contents or f'not known: {found.contents_note}'}"
        yield "as DALiuGE's modes:"
        yield from (f"  {mode:<15} {digest or 'not known'}" for mode, digest in found.modes.items())


class OriginReply(msgspec.Struct, frozen=True, kw_only=True):
    """What a drop was made from."""

    ok: bool = True
    origin: "Origin"

    def lines(self) -> Iterator[str]:
        """The drop, its logical nodes with their parameters, and a page of the drops on the way."""
        found = self.origin
        content = "" if found.size is None else f", {format_size(found.size)}, {_checksum(found.checksum)}"
        yield f"{found.name} ({found.oid}){content}"
        yield f"  graph {found.graph}, parameters {found.parameters}; software: {_software(found.software)}"
        yield f"upstream of it: {plural(found.total - 1, 'drop')}; roots: {found.roots:,}"
        yield from (f"note: node {node} did not answer: what it has is missing" for node in found.missing)
        yield "logical nodes, the nearest first:"
        for one in found.nodes.rows:
            tried = f", {plural(one.attempts, 'attempt')}, {one.failed} failed" if one.attempts else ""
            ran = f", ran {format_brief(one.seconds)} on {few(one.nodes)}" if one.nodes else ""
            yield f"  {one.name}: {one.drops:,} of {plural(one.all_drops, 'drop')}, {one.component}{tried}{ran}"
            yield from (f"      {name} = {single_line(value, 100)}" for name, value in one.parameters if value)
        if found.nodes.left_out:
            yield f"  {plural(found.nodes.left_out, 'more logical node')}"
        yield f"drops {found.offset + 1:,} to {found.offset + len(found.drops):,} of {found.total:,}:"
        rows = [(one.away, one.name, one.state or "not known", one.digest[:16], _made(one)) for one in found.drops]
        yield from columns(rows, header=("away", "drop", "state", "digest", ""))


def _software(software: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in software.items()) or "not recorded"


def _checksum(checksum: int | None) -> str:
    return "no checksum" if checksum is None else f"CRC-32 {checksum:08x}"


def _made(drop: "OriginDrop") -> str:
    if drop.size is not None:
        return f"{format_size(drop.size)}, {_checksum(drop.checksum)}"
    tried = [
        f"attempt {one.attempt}{' failed' if one.failed else ''} on {one.node}, {format_brief(one.ran)}"
        for one in drop.attempts
    ]
    return "; ".join(tried)


class CrateReply(msgspec.Struct, frozen=True, kw_only=True):
    """What was written for an archive.

    Attributes
    ----------
    signed : int
        How many files its signature covers; 0 without one.
    """

    ok: bool
    file: str
    results: int
    missing: tuple[str, ...]
    signed: int = 0

    def lines(self) -> Iterator[str]:
        """The file, the results that are not described, and the signature."""
        yield f"{self.file} describes {plural(self.results, 'result')}"
        if self.missing:
            yield f"{plural(len(self.missing), 'result')} not in that directory: {few(self.missing, _SHOWN)}"
        if self.signed:
            yield f"signed: {plural(self.signed, 'file')}"


def _write_crate(
    output: CommandOutput, manager: ConnectionOptions, run: str, directory: Path, license_: str, *, is_signed: bool
) -> Exit:
    from dropflow.cli.crate import METADATA, sign_crate, write_crate
    from dropflow.cli.prov import MOST_DROPS

    if not directory.is_dir():
        raise UsageError("there is no such directory", where=str(directory), hint="'dropflow fetch' writes results")
    key = None
    if is_signed:
        from dropflow.cli.manager_records import default_key
        from managers.keys import load

        key = load(Path(manager.key) if manager.key else default_key())
    report = _report_of(manager, run, has_states=True)
    if report.graph.drops > MOST_DROPS:
        output.note(f"the provenance of single drops is left out: there are more than {MOST_DROPS:,}")
    found, missing = write_crate(
        report,
        directory.absolute(),
        license_=license_ or "not stated",
        reused=_origins(manager, run, report),
    )
    signed = 0 if key is None else sign_crate(directory, key.secret, key.fingerprint)
    file = str(directory / METADATA)
    output.answer(CrateReply(ok=not missing, file=file, results=found, missing=tuple(missing), signed=signed))
    return Exit.FAILED if missing else Exit.FINISHED


def _origins(manager: ConnectionOptions, run: str, report: "SessionReport") -> dict[int, str]:
    """Return from which session and host results were taken, by their drops."""
    from dropflow.graph.text_ids import oid
    from dropflow.reuse.log import origin_in

    graph, results = report.graph, report.results.results
    found = {one.drop: one.reused for one in results if one.reused}
    if not report.detail.reused or is_run_directory(run, has_url=manager.url is not None):
        return found
    # The node of a result knows only what its own applications have taken.
    away = [
        (one.drop, app)
        for one in results
        for app in graph.predecessors.of(one.drop)
        if one.drop not in found and graph.part[app] != graph.part[one.drop]
    ]
    if away:
        with manager.connect() as client:
            for drop, app in away:
                if origin := origin_in(client.drop(run, oid(graph, app)).reasons):
                    found[drop] = origin
    return found


def show_origin(
    output: CommandOutput, manager: ConnectionOptions, run: str, drop: str | None, page: "PageQuery"
) -> Exit:
    """Answer with what a run computed, as a signature, or with what a drop of it was made from."""
    report = _report_of(manager, run, has_states=drop is not None)
    if drop is None:
        from dropflow.web.signature import signature

        name = report.detail.session
        output.answer(SignatureReply(run=name, signature=signature(report.graph, report.results)))
        return Exit.FINISHED
    from dropflow.web.origin import origin_of

    output.answer(OriginReply(origin=origin_of(report, drop, page)))
    return Exit.FINISHED
