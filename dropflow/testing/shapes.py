"""Large graphs of simple shape, for benchmarks and for tests of how costs grow."""

import numpy as np

from dropflow.graph.builder import from_columns
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Axis, Kind, Link, Template

__all__ = ["chain", "fan"]

_MEMORY = "dlg.data.drops.memory.InMemoryDROP"
_NOOP = "dlg.apps.simple.NullBarrierApp"


def fan(drops: int) -> PhysicalGraph:
    """One data drop, then about `drops` / 2 no-op applications with a data drop each."""
    copies = drops // 2
    axes = (Axis("fan", "fan", "scatter", copies),)
    each = np.arange(copies, dtype=np.int32)
    zero = np.zeros(copies, dtype=np.int32)
    return from_columns(
        name="fan",
        prefix="fan",
        templates=(
            Template(key="r", name="root", kind=Kind.DATA, component=_MEMORY),
            Template(key="a", name="app", kind=Kind.APP, component=_NOOP, axes=axes),
            Template(key="d", name="data", kind=Kind.DATA, component=_MEMORY, axes=axes),
        ),
        links=(Link(source=0, target=1), Link(source=1, target=2)),
        template=np.concatenate([[0], zero + 1, zero + 2]).astype(np.int32),
        instance=np.concatenate([[0], each, each]).astype(np.int32),
        source=np.concatenate([zero, 1 + each]),
        target=np.concatenate([1 + each, 1 + copies + each]),
        link=np.repeat(np.arange(2, dtype=np.int32), copies),
    )


def chain(drops: int) -> PhysicalGraph:
    """No-op applications and data by turns, one after the other."""
    axes = (Axis("chain", "chain", "loop", drops // 2),)
    rows = np.arange(drops // 2 * 2, dtype=np.int32)
    return from_columns(
        name="chain",
        prefix="chain",
        templates=(
            Template(key="a", name="app", kind=Kind.APP, component=_NOOP, axes=axes),
            Template(key="d", name="data", kind=Kind.DATA, component=_MEMORY, axes=axes),
        ),
        links=(Link(source=0, target=1), Link(source=1, target=0, carry=True)),
        template=rows % 2,
        instance=rows // 2,
        source=rows[:-1],
        target=rows[1:],
        link=rows[:-1] % 2,
    )
