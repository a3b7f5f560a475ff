"""``dropflow provenance``: the signature of a session, or what one of its drops was made from."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click
import msgspec

from dropflow.cli.candidates import drops, runs
from dropflow.cli.exit_status import Exit
from dropflow.cli.options import ConnectionOptions, connection_options, output_options
from dropflow.cli.output import CommandOutput
from dropflow.cli.run_reports import report_of_run
from dropflow.cli.tables import columns, few
from dropflow.formatting import format_brief, format_size, plural, single_line

if TYPE_CHECKING:
    from dropflow.session_views.result_origin import Origin, OriginDrop
    from dropflow.session_views.signature import SessionSignature

__all__ = ["command"]


class SignatureReply(msgspec.Struct, frozen=True, kw_only=True):
    """What a session computed."""

    ok: bool = True
    run: str
    signature: "SessionSignature"

    def lines(self) -> Iterator[str]:
        """One line for each level."""
        found = self.signature
        yield self.run
        yield f"  graph       {found.graph}"
        yield f"  parameters  {found.parameters}"
        yield f"  software    {_software(found.software)}"
        yield f"  contents    {found.contents or f'not known: {found.contents_note}'}"


class ProvenanceReply(msgspec.Struct, frozen=True, kw_only=True):
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


@click.command("provenance")
@output_options
@click.argument("run", metavar="RUN", shell_complete=runs)
@click.argument("drop", metavar="[DROP]", required=False, shell_complete=drops)
@click.option("--offset", metavar="N", type=click.IntRange(min=0), default=0, help="List drops from the N-th on.")
@click.option(
    "--limit", metavar="N", type=click.IntRange(1, 1000), default=50, show_default=True, help="List N drops at most."
)
@connection_options
def command(
    output: CommandOutput, *, manager: ConnectionOptions, run: str, drop: str | None, offset: int, limit: int
) -> Exit:
    """Show what RUN computed, as a signature, or what DROP of it was made from.

    RUN is a session of a manager, or the directory of a run. The signature has four levels: graph (components, links
    and indices), parameters, software, and contents (sizes and checksums of the results). Two sessions with the same
    digest at a level are the same there, whatever their nodes, plans and names are; 'dropflow compare' says what
    differs.

    DROP is an id, the end of one, or a name such as 'Measure 3'. The answer has the logical nodes upstream of it, back
    to the roots, with their parameters and attempts, and a page of the drops, the nearest first. Drops that failed or
    were skipped are among them.
    """
    from dropflow.rest.session_records import PageQuery

    report = report_of_run(manager, run, has_states=drop is not None)
    if drop is None:
        from dropflow.session_views.signature import signature

        name = report.detail.session
        output.answer(SignatureReply(run=name, signature=signature(report.graph, report.results)))
        return Exit.FINISHED
    from dropflow.session_views.result_origin import origin_of

    output.answer(ProvenanceReply(origin=origin_of(report, drop, PageQuery(offset=offset, limit=limit))))
    return Exit.FINISHED
