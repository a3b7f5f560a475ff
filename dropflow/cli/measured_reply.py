"""The answer of ``dropflow profile FILE``: what the measurements in a file say of each logical node."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from dropflow.cli.tables import columns
from dropflow.formatting import format_brief, format_size, plural

if TYPE_CHECKING:
    from translator.planning.measured import MeasuredNode

__all__ = ["MeasuredReply", "MeasuredSummary", "summaries"]


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
