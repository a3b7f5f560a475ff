"""Graphs of MPI jobs."""

from dropflow.graph.physical import PhysicalGraph
from tests.translator.drawing import Drawing
from translator.logical import Field
from translator.pipeline import translate

COMMAND = 'echo "$DROPFLOW_RANK of $DROPFLOW_RANKS" > {out}'


def job(command: str, ranks: int = 3, copies: int = 1, **fields: object) -> PhysicalGraph:
    """Return an MPI job in each copy of a scatter, between data and a file."""
    drawing = Drawing()
    with drawing.scatter("S", copies):
        drawing.data("given", pydata="text")
        out = Field(id="m.out", name="out", usage="OutputPort", encoding="path")
        drawing.app("m", "Mpi", dropclass="", num_of_procs=ranks, command=command, out=out, **fields)
        drawing.data("made", "File")
    drawing.link("given", "m").link("m", "made", ports=("m.out", ""))
    return translate(drawing.graph()).graph
