"""``dropflow info``: what is in a physical graph."""

from typing import TYPE_CHECKING

import click

from dropflow.cli.exits import Exit
from dropflow.cli.options import graph_argument, speaks

if TYPE_CHECKING:
    from dropflow.cli.output import Output

__all__ = ["info"]


@click.command("info")
@speaks
@graph_argument
def info(output: "Output", *, graph: str) -> Exit:
    """Show what is in GRAPH: totals, and one line per logical node with the shape of its index space.

    GRAPH is usually a .dfg file; other graphs are unrolled first.
    """
    import numpy as np

    from dropflow.cli.replies import InfoReply, NodeCount, counts
    from dropflow.cli.source import component_options, note_problems, translate_source
    from dropflow.graph.digest import digest
    from dropflow.graph.order import critical_path, levels

    done = translate_source(graph, components=component_options(elsewhere=True))
    note_problems(output, done.problems)
    physical = done.graph
    sizes = np.bincount(physical.template, minlength=len(physical.templates))
    out = physical.successors
    columns = (physical.template, physical.instance, physical.part, out.ptr, out.neighbour, out.link)
    output.answer(
        InfoReply(
            name=physical.name,
            prefix=physical.prefix,
            parts=physical.parts,
            places=physical.places,
            levels=int(levels(physical).max(initial=-1)) + 1,
            critical_path=critical_path(physical).length,
            bytes=sum(column.nbytes for column in columns),
            digest=digest(physical),
            nodes=tuple(
                NodeCount(
                    name=template.name,
                    category=template.category,
                    component=template.component,
                    shape=template.shape,
                    drops=int(size),
                )
                for template, size in zip(physical.templates, sizes, strict=True)
            ),
            **counts(physical),
        )
    )
    return Exit.FINISHED
