"""A graph whose texts contain markup."""

import numpy as np

from dropflow.graph.build import from_columns
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind, Template

HOSTILE = "<script>alert('x')</script>\"'&{{1+1}}%>\n\u202e\x00" + "W" * 9_000


def hostile_graph() -> PhysicalGraph:
    """Return a graph of two drops whose names and keys contain markup."""
    return from_columns(
        name=HOSTILE,
        prefix="x",
        templates=(
            Template(key="a'\"><script>", name=HOSTILE, kind=Kind.DATA, component=HOSTILE, category=HOSTILE),
            Template(key="b/../?#%2e", name="", kind=Kind.DATA, component="x"),
        ),
        links=(),
        template=np.array([0, 1], np.int32),
        instance=np.zeros(2, np.int32),
        source=np.zeros(0, np.int64),
        target=np.zeros(0, np.int64),
        link=np.zeros(0, np.int32),
    )
