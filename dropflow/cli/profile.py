"""``dropflow profile``: what the attempts of a run took, by logical node."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from dropflow.cli.exit_status import Exit
from dropflow.cli.options import output_options
from dropflow.cli.output import CommandOutput
from dropflow.cli.tables import columns
from dropflow.formatting import format_duration, format_size, plural

if TYPE_CHECKING:
    from dropflow.times.statistics import NodeProfile, SlowAttempt

__all__ = ["command"]


class ProfileReply(msgspec.Struct, frozen=True, kw_only=True):
    """What the attempts of a session took."""

    ok: bool = True
    graph: str
    attempts: int
    nodes: "tuple[NodeProfile, ...]"
    slowest: "tuple[SlowAttempt, ...]"

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
@click.argument("directories", metavar="DIR...", nargs=-1, required=True)
def command(output: CommandOutput, *, most: int, directories: tuple[str, ...]) -> Exit:
    """Show what the attempts of a run took: times, processor time, memory and bytes, by logical node.

    DIR is the directory of a run, also of one that is running or was killed. For a session of managers, give the
    directories that it has on its nodes (ROOT/sessions/SESSION) together. Times are those of attempts that have ended;
    'waited' is the median from when an attempt could begin until it was given to the workers, and 'queued' from then
    until one of them began it.
    """
    import numpy as np

    from dropflow.errors import NotFoundError
    from dropflow.measured_run import read_records, read_run
    from dropflow.times.by_template import profile, slowest

    first, *others = (Path(directory) for directory in directories)
    graph, found = read_run(first)
    records = np.concatenate([found, *(read_records(other) for other in others)])
    if len(records) and records["drop"].max() >= graph.drops:
        raise NotFoundError("these directories are not of one session", where=directories[0])
    output.answer(
        ProfileReply(
            graph=graph.name,
            attempts=len(records),
            nodes=profile(graph, records),
            slowest=slowest(graph, records, most),
        )
    )
    return Exit.FINISHED
