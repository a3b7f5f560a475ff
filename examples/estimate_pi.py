"""Estimate pi by random points, as a graph that is written in Python: ``python examples/estimate_pi.py``.

The script writes ``estimate-pi.graph``, which EAGLE opens, and runs it.
"""

from pathlib import Path

import numpy as np

from dropflow import Graph, app

HERE = Path(__file__).parent


@app
def seeds(count: int) -> list[int]:
    """Return different seeds."""
    return list(range(1, count + 1))


@app(n_tries=2)
def throw(seed: int, points: int) -> int:
    """Return how many of so many random points of a square are in the circle inside it."""
    x, y = np.random.default_rng(seed).uniform(-1, 1, (2, points))
    return int(np.sum(x * x + y * y < 1))


@app
def estimate(hits: list[int], points: int) -> float:
    """Return pi from the share of the points in the circle."""
    return 4 * sum(hits) / (len(hits) * points)


@app
def report(value: float) -> str:
    """Return the estimate as a line of text."""
    return f"pi is about {value:.3f}\n"


def pi() -> Graph:
    """Return the graph: a template with the numbers of batches and points."""
    with Graph("estimate-pi", "Estimates pi by throwing random points at a circle.") as graph:
        batches = graph.parameter("batches", 8, minimum=1, description="Number of batches, which run in parallel")
        points = graph.parameter("points", 20000, minimum=1, description="Points in each batch")
        with graph.each(seeds(batches), copies=batches, name="Batches") as seed:
            hits = throw(seed, points)
        report(estimate(hits, points)).save("pi.txt")
    return graph


if __name__ == "__main__":
    graph = pi()
    graph.save(HERE / "estimate-pi.graph")
    print(graph.run({"batches": 4}))
