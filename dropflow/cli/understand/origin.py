"""Digests of results, and the origin of a result: ``dropflow explain --origin``."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from dropflow.cli.exit_status import Exit
from dropflow.cli.output import CommandOutput, columns
from dropflow.cli.run_or_session import report_of
from dropflow.formatting import few, format_brief, format_size, plural, single_line
from dropflow.submission.options import ConnectionOptions

if TYPE_CHECKING:
    from dropflow.api.drop_records import PageQuery
    from dropflow.web.origin import Origin, OriginDrop
    from dropflow.web.signature import SessionSignature


class SignatureReply(msgspec.Struct, frozen=True, kw_only=True):
    """Digests of the graph, the parameters and the results of a session."""

    ok: bool = True
    run: str
    signature: "SessionSignature"

    def lines(self) -> Iterator[str]:
        """One line for each level."""
        signature = self.signature
        yield self.run
        if signature.repository is not None:
            yield f"  repository  {signature.repository.address}"
            yield f"  commit      {signature.repository.commit}, file {signature.repository.digest}"
        yield f"  graph       {signature.graph}"
        yield f"  parameters  {signature.parameters}"
        yield f"  software    {_software(signature.software)}"
        yield f"  contents    {signature.contents or f'not known: {signature.contents_note}'}"
        yield "as DALiuGE's modes:"
        yield from (f"  {mode:<15} {digest or 'not known'}" for mode, digest in signature.modes.items())


class OriginReply(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs, applications and parameters that a drop was made from."""

    ok: bool = True
    origin: "Origin"

    def lines(self) -> Iterator[str]:
        """Yield the drop, its logical nodes with their parameters, and a page of the drops on the way."""
        origin = self.origin
        content = "" if origin.size is None else f", {format_size(origin.size)}, {checksum_text(origin.checksum)}"
        yield f"{origin.name} ({origin.oid}){content}"
        yield f"  graph {origin.graph}, parameters {origin.parameters}; software: {_software(origin.software)}"
        yield f"upstream of it: {plural(origin.total - 1, 'drop')}; roots: {origin.roots:,}"
        yield from (f"note: node {node} did not answer: its part is missing" for node in origin.missing)
        yield "logical nodes, the nearest first:"
        for row in origin.nodes.rows:
            tried = f", {plural(row.attempts, 'attempt')}, {row.failed} failed" if row.attempts else ""
            ran = f", ran {format_brief(row.seconds)} on {few(row.nodes)}" if row.nodes else ""
            yield f"  {row.name}: {row.drops:,} of {plural(row.all_drops, 'drop')}, {row.component}{tried}{ran}"
            yield from (f"      {name} = {single_line(value, 100)}" for name, value in row.parameters if value)
        if origin.nodes.left_out:
            yield f"  {plural(origin.nodes.left_out, 'more logical node')}"
        yield f"drops {origin.offset + 1:,} to {origin.offset + len(origin.drops):,} of {origin.total:,}:"
        rows = [
            (drop.away, drop.name, drop.state or "not known", drop.digest[:16], _made(drop)) for drop in origin.drops
        ]
        yield from columns(rows, header=("away", "drop", "state", "digest", ""))


def _software(software: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in software.items()) or "not recorded"


def checksum_text(checksum: int | None) -> str:
    """Return a checksum as it is shown."""
    return "no checksum" if checksum is None else f"CRC-32 {checksum:08x}"


def _made(drop: "OriginDrop") -> str:
    if drop.path:
        return drop.path
    if drop.size is not None:
        return f"{format_size(drop.size)}, {checksum_text(drop.checksum)}"
    tried = [
        f"attempt {attempt.attempt}{' failed' if attempt.failed else ''} on {attempt.node}, {format_brief(attempt.ran)}"
        for attempt in drop.attempts
    ]
    return "; ".join(tried)


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
