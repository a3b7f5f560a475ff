"""Physical graphs of simple shape and any size, for tests of how costs grow and for benchmarks."""

import msgspec
import numpy as np

from dropflow.graph.build import from_columns
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument, Axis, Kind, Link, Template

_MEMORY = "dlg.data.drops.memory.InMemoryDROP"


_NOOP = "dlg.apps.simple.NullBarrierApp"


_FUNCTION = "dlg.apps.pyfunc.PyFuncApp"


def fan(drops: int, *, seconds: float = 0.0) -> PhysicalGraph:
    """Return one data drop, then about `drops` / 2 applications with a data drop each.

    They do nothing; or they are Python functions, which sleep so many `seconds`.
    """
    app = Template(key="a", name="app", kind=Kind.APP, component=_NOOP)
    if seconds:
        code = f"def f(event=None):\n    import time\n    time.sleep({seconds!r})\n"
        arguments = (
            Argument(name="func_name", value="f"),
            Argument(name="func_code", value=code),
            Argument(name="event", type="Event", usage="InputPort"),
        )
        app = Template(key="a", name="app", kind=Kind.APP, component=_FUNCTION, arguments=arguments)
    copies = drops // 2
    axes = (Axis("fan", "fan", "scatter", copies),)
    each = np.arange(copies, dtype=np.int32)
    zero = np.zeros(copies, dtype=np.int32)
    return from_columns(
        name="fan",
        prefix="fan",
        templates=(
            Template(key="r", name="root", kind=Kind.DATA, component=_MEMORY),
            msgspec.structs.replace(app, axes=axes),
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
    """Return a chain of no-op applications and data drops."""
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


def chains(drops: int, length: int) -> PhysicalGraph:
    """Return about `drops` drops as chains side by side, each of `length` no-op applications with their data."""
    count = drops // (2 * length)
    axes = (Axis("s", "scatter", "scatter", count),)
    columns = np.arange(2 * length, dtype=np.int32)
    rows = np.arange(2 * length * count, dtype=np.int32)
    return from_columns(
        name="chains",
        prefix="chains",
        templates=tuple(
            Template(key=f"a{column}", name=f"app {column}", kind=Kind.APP, component=_NOOP, axes=axes)
            if column % 2 == 0
            else Template(key=f"d{column}", name=f"data {column}", kind=Kind.DATA, component=_MEMORY, axes=axes)
            for column in columns.tolist()
        ),
        links=tuple(Link(source=column, target=column + 1) for column in columns[:-1].tolist()),
        template=np.repeat(columns, count),
        instance=rows % max(count, 1),
        source=rows[:-count],
        target=rows[count:],
        link=np.repeat(columns[:-1], count),
    )


def triples(drops: int, parts: int) -> PhysicalGraph:
    """Return about `drops` drops as triples: memory, no-op application, memory.

    Each triple begins on one part and continues on the next, so that with several `parts` half of the edges are cut.
    """
    count = drops // 3
    axes = (Axis("s", "scatter", "scatter", count),)
    each = np.arange(count, dtype=np.int32)
    return from_columns(
        name="triples",
        prefix="bench",
        templates=(
            Template(key="d", name="in", kind=Kind.DATA, component=_MEMORY, axes=axes),
            Template(key="a", name="app", kind=Kind.APP, component=_NOOP, axes=axes),
            Template(key="e", name="out", kind=Kind.DATA, component=_MEMORY, axes=axes),
        ),
        links=(Link(source=0, target=1), Link(source=1, target=2)),
        template=np.repeat(np.arange(3, dtype=np.int32), count),
        instance=np.tile(each, 3),
        source=np.arange(2 * count),
        target=np.arange(count, 3 * count),
        link=np.repeat(np.arange(2, dtype=np.int32), count),
        part=np.concatenate([each % parts, (each + 1) % parts, (each + 1) % parts]),
    )


def relay(hops: int, parts: int) -> PhysicalGraph:
    """Return a chain of applications, alternately on the `parts`; each writes when it started, in nanoseconds."""
    axes = (Axis("c", "chain", "loop", hops),)
    rows = np.arange(2 * hops, dtype=np.int32)
    clock = (
        Argument(name="func_name", value="time.monotonic_ns"),
        Argument(name="event", type="Event", usage="InputPort"),
        Argument(name="time", usage="OutputPort", encoding="pickle"),
    )
    return from_columns(
        name="relay",
        prefix="bench",
        templates=(
            Template(key="a", name="app", kind=Kind.APP, component=_FUNCTION, axes=axes, arguments=clock),
            Template(key="d", name="time", kind=Kind.DATA, component=_MEMORY, axes=axes, persist=True),
        ),
        links=(
            Link(source=0, target=1, source_port="time", target_port="time"),
            Link(source=1, target=0, source_port="event", target_port="event", carry=True),
        ),
        template=rows % 2,
        instance=rows // 2,
        source=rows[:-1],
        target=rows[1:],
        link=rows[:-1] % 2,
        part=rows // 2 % parts,
    )
