"""Graphs whose drops must stay together."""

from dropflow.graph.physical import PhysicalGraph
from tests.translator.drawing import Drawing
from translator.options import UnrollOptions
from translator.unroll import plan, unroll

__all__ = ["exclusive_and_mpi"]


def exclusive_and_mpi(copies: int, ranks: int = 2) -> PhysicalGraph:
    """Return a root, and in each copy data, an application of two alone on a node, and an MPI job."""
    drawing = Drawing().data("root")
    with drawing.scatter("S", copies):
        drawing.app("first").data("given")
        with drawing.construct("ExclusiveForceNode", "X"):
            drawing.app("alone").data("made")
        drawing.app("job", category="Mpi", num_of_procs=ranks).data("end")
    drawing.link("root", "first", "given", "alone", "made", "job", "end")
    return unroll(plan(drawing.graph(), UnrollOptions()))
