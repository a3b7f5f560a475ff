"""``dropflow profile``: what the attempts of a run took, by logical node."""

from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from dropflow.cli.exit_status import Exit
from dropflow.cli.option_types import ConnectionOptions, connection_options, output_options
from dropflow.cli.output import CommandOutput
from dropflow.cli.progress import columns
from dropflow.cli.times import runs_argument
from dropflow.cli.unroll import measured_by, run_of
from dropflow.formatting import format_brief, format_duration, format_size, plural

__all__ = [
    "MeasuredReply",
    "MeasuredSummary",
    "profile_command",
    "summaries",
]


# The answer of ``dropflow profile FILE``: what the measurements in a file say of each logical node.

if TYPE_CHECKING:
    from translator.plan.measured import MeasuredNode


class MeasuredSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured of one logical node.

    Attributes
    ----------
    key, kind : str
        Its id, and ``application`` or ``data``.
    instances, measurements : int
        How many instances were measured, and how often in all.
    mean, largest : float
        Of its instances: seconds of applications, bytes of data.
    processor : float or None
        Mean seconds of processor time of an application; None if it is not known.
    memory : float or None
        Largest resident memory of an application, in bytes; None if it is not known.
    """

    key: str
    kind: str
    instances: int
    measurements: int
    mean: float
    largest: float
    processor: float | None
    memory: float | None


class MeasuredReply(msgspec.Struct, frozen=True, kw_only=True):
    """What the file of a profile has."""

    ok: bool = True
    nodes: tuple[MeasuredSummary, ...]

    def lines(self) -> Iterator[str]:
        """One line for each logical node."""
        yield f"measurements of {plural(len(self.nodes), 'logical node')}"
        rows = [
            (
                node.key,
                node.instances,
                node.measurements,
                *map(format_brief if node.kind == "application" else _size, (node.mean, node.largest)),
                "" if node.processor is None else format_brief(node.processor),
                "" if node.memory is None else _size(node.memory),
            )
            for node in self.nodes
        ]
        yield from columns(rows, header=("node", "instances", "measured", "mean", "largest", "processor", "memory"))


def _size(number: float) -> str:
    return format_size(round(number))


def summaries(nodes: "Sequence[MeasuredNode]") -> tuple[MeasuredSummary, ...]:
    """Return what was measured of each logical node, those with most work first, then data."""
    import numpy as np

    from dropflow.graph.templates import Kind

    found = []
    for node in nodes:
        processor, memory = node.processor[np.isfinite(node.processor)], node.memory[np.isfinite(node.memory)]
        found.append(
            MeasuredSummary(
                key=node.key,
                kind="application" if node.kind is Kind.APP else "data",
                instances=len(node.instance),
                measurements=int(node.count.sum()),
                mean=float(node.mean.mean()),
                largest=float(node.mean.max()),
                processor=float(processor.mean()) if len(processor) else None,
                memory=float(memory.max()) if len(memory) else None,
            )
        )
    return tuple(sorted(found, key=lambda one: (one.kind, -one.mean * one.instances, one.key)))


if TYPE_CHECKING:
    from dropflow.times.statistics import AttemptProfile, NodeProfile
    from translator.plan.measured import MeasuredNode


class ProfileReply(msgspec.Struct, frozen=True, kw_only=True):
    """What the attempts of a session took."""

    ok: bool = True
    graph: str
    attempts: int
    nodes: "tuple[NodeProfile, ...]"
    slowest: "tuple[AttemptProfile, ...]"

    def lines(self) -> Iterator[str]:
        """One line for each logical node, then the slowest attempts."""
        yield f"{self.graph}: {plural(self.attempts, 'attempt')}"
        rows = [
            (
                node.name,
                node.attempts,
                node.failed,
                _duration(node.seconds),
                _duration(node.median),
                _duration(node.p95),
                _duration(node.longest),
                _duration(node.waited),
                _duration(node.queued),
                _duration(node.processor),
                format_size(node.memory) if node.memory else "",
                format_size(node.read),
                format_size(node.written),
            )
            for node in self.nodes
        ]
        header = ("node", "attempts", "failed", "sum", "median", "95 %", "longest", "waited", "queued")
        yield from columns(rows, header=(*header, "processor", "memory", "read", "written"))
        if self.slowest:
            yield "slowest attempts:"
            slow = [(one.drop, one.attempt, _duration(one.ran), _duration(one.waited)) for one in self.slowest]
            yield from columns(slow, header=("drop", "attempt", "ran", "waited"))


def _duration(seconds: float) -> str:
    return format_duration(seconds) if seconds >= 1 else f"{seconds * 1000:.3g} ms"


@click.command("profile")
@output_options
@click.option(
    "--slowest", "most", metavar="N", type=click.IntRange(0), default=0, help="Also list the N slowest attempts."
)
@click.option("-o", "target", metavar="FILE", help="Write what was measured to FILE, for --profile of other commands.")
@click.option(
    "--with",
    "others",
    metavar="RUN",
    multiple=True,
    help="Also write what RUN has measured, a run, a session or a file; repeatable.",
)
@connection_options
@runs_argument
def profile_command(
    output: CommandOutput,
    *,
    manager: ConnectionOptions,
    most: int,
    target: str | None,
    others: tuple[str, ...],
    runs: tuple[str, ...],
) -> Exit:
    """Show what the attempts of a run took: times, processor time, memory and bytes, by logical node.

    RUN is a session of a manager, or the directory of a run, also of one that runs or was killed. The directories that
    a session has on its nodes (ROOT/sessions/SESSION) are given together. Times are those of attempts that have ended;
    'waited' is the median from when an attempt could begin until it was given to the workers, and 'queued' from then
    until one of them began it.

    RUN may also be a file that -o has written: then this shows the mean times and the largest memory in it.
    """
    from dropflow.errors import UsageError
    from dropflow.times.timeline import profile, slowest
    from translator.plan.measured import measured_nodes, merged_nodes

    if others and target is None:
        raise UsageError("--with merges measurements into a file", hint="name it with -o FILE")
    if len(runs) == 1 and Path(runs[0]).is_file():
        if most:
            raise UsageError("a file of measurements has no single attempts", where=runs[0], hint="leave out --slowest")
        nodes = merged_nodes(measured_by(output, manager, (*runs, *others)))
        if target is not None:
            _write(nodes, Path(target))
        output.answer(MeasuredReply(nodes=summaries(nodes)))
        return Exit.FINISHED
    run = run_of(output, manager, runs)
    graph, records = run
    if target is not None:
        _write(merged_nodes([*measured_nodes(run), *measured_by(output, manager, others)]), Path(target))
    output.answer(
        ProfileReply(
            graph=graph.name,
            attempts=len(records),
            nodes=profile(graph, records),
            slowest=slowest(graph, records, most),
        )
    )
    return Exit.FINISHED


def _write(nodes: "Sequence[MeasuredNode]", target: Path) -> None:
    """Write measurements to a file, which is replaced as a whole."""
    from dropflow.cli.graph_files import replace_file
    from translator.plan.profile_file import write_profile

    content = BytesIO()
    write_profile(nodes, content)
    replace_file(target, content.getvalue())
