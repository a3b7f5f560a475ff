"""Cost per node stays flat while logical graphs grow; only the shape is asserted, never a time."""

import json
import time
from collections.abc import Callable

import pytest

from tests.translator.documents import document, field, link, node, port
from translator.formats import read_logical
from translator.logical import LogicalGraph
from translator.parameters import fill
from translator.validate import validate

pytestmark = pytest.mark.slow

SMALL, LARGE = 300, 3_000
_FACTOR = 4.0


def _chain(size: int, *, broken: bool = False) -> bytes:
    """Return a chain of data and applications as a file; in a broken one every node has an error."""
    kinds = ("Memroy", "DALiuGEap") if broken else ("Memory", "DALiuGEApp")
    more = {"parentId": "gone"} if broken else {}
    nodes = [
        node(f"n{place}", kinds[place % 2], port(f"p{place}", "io", "InputOutput"), field("x", "{v}"), **more)
        for place in range(size)
    ]
    end = "gone" if broken else "n"
    links = [link(f"n{place}", f"p{place}", f"{end}{place + 1}", f"p{place + 1}") for place in range(size - 1)]
    return json.dumps(document([*nodes, node("V", "GlobalVariables", field("v", "1"))], links)).encode()


def _graph(data: bytes) -> LogicalGraph:
    """The graph in a file."""
    graph = read_logical(data, name="chain").graph
    assert graph is not None
    return graph


def _seconds(work: Callable[[], object]) -> float:
    """Return the processor time of one call, the lesser of two."""
    times = []
    for _ in range(2):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


@pytest.mark.parametrize("broken", [False, True], ids=["sound", "broken"])
@pytest.mark.parametrize("stage", ["read", "fill", "validate"])
def test_cost_per_node_stays_flat(stage: str, *, broken: bool) -> None:
    """The cost per node of 3,000 nodes is at most four times that of 300, with or without errors."""
    costs = {}
    for size in (SMALL, LARGE):
        data = _chain(size, broken=broken)
        graph = _graph(data)
        work = {
            "read": lambda d=data: _graph(d),
            "fill": lambda g=graph: fill(g),
            "validate": lambda g=graph: validate(g),
        }
        costs[size] = _seconds(work[stage]) / size

    assert costs[LARGE] <= _FACTOR * costs[SMALL]
