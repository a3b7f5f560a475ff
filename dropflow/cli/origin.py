"""What runs and sessions have computed, and from what: ``dropflow explain --origin`` and ``--crate``."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dropflow.cli.candidates import is_run_directory
from dropflow.cli.exit_status import Exit
from dropflow.cli.output import CommandOutput, columns
from dropflow.errors import UsageError
from dropflow.formatting import few, format_brief, format_size, plural, single_line
from dropflow.submission.options import ConnectionOptions

if TYPE_CHECKING:
    from dropflow.api.drop_records import PageQuery
    from dropflow.web.origin import Origin, OriginDrop
    from dropflow.web.report import SessionReport
    from dropflow.web.signature import SessionSignature

_SHOWN = 25


def report_of(
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
    from dropflow.submission.connection import connect_to, manager_url
    from dropflow.web.report import session_report

    url = manager_url(manager if other_url is None else ConnectionOptions(url=other_url))
    if other_url is not None and manager.url is None:  # the token is for the manager of the options
        manager = ConnectionOptions(key=manager.key)
    with connect_to(url, manager) as client:
        return session_report(client, run, has_results=True, has_states=has_states)


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
        content = "" if found.size is None else f", {format_size(found.size)}, {checksum_text(found.checksum)}"
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


def checksum_text(checksum: int | None) -> str:
    """Return a checksum as it is shown."""
    return "no checksum" if checksum is None else f"CRC-32 {checksum:08x}"


def _made(drop: "OriginDrop") -> str:
    if drop.size is not None:
        return f"{format_size(drop.size)}, {checksum_text(drop.checksum)}"
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


def write_crate(
    output: CommandOutput, manager: ConnectionOptions, run: str, directory: Path, license_: str, *, is_signed: bool
) -> Exit:
    """Write a run into a Workflow Run RO-Crate, and answer with what is in it."""
    from dropflow.cli.crate import METADATA, sign_crate, write_crate
    from dropflow.cli.prov import MOST_DROPS

    if not directory.is_dir():
        raise UsageError("there is no such directory", where=str(directory), hint="'dropflow fetch' writes results")
    key = None
    if is_signed:
        from dropflow.submission.manager_records import default_key
        from managers.keys import load

        key = load(Path(manager.key) if manager.key else default_key())
    report = report_of(manager, run, has_states=True)
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
    report = report_of(manager, run, has_states=drop is not None)
    if drop is None:
        from dropflow.web.signature import signature

        name = report.detail.session
        output.answer(SignatureReply(run=name, signature=signature(report.graph, report.results)))
        return Exit.FINISHED
    from dropflow.web.origin import origin_of

    output.answer(OriginReply(origin=origin_of(report, drop, page)))
    return Exit.FINISHED
