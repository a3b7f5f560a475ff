"""The graph of a user's day: a template that makes a picture, waits for a file, and fails without another one."""

import sys
from pathlib import Path
from threading import Event

import numpy as np

from dropflow import Graph, app


@app
def seeds(count: int) -> list[int]:
    """Return different seeds."""
    return list(range(count))


@app
def expose(seed: int, size: int, gate: str) -> list[list[float]]:
    """Return a noisy picture, once there is a file."""
    while not Path(gate).exists():
        Event().wait(0.02)
    return np.random.default_rng(seed).normal(10.0, 1.0, (size, size)).tolist()


@app
def calibrate(pictures: list[list[list[float]]], flat: str) -> object:
    """Return the mean of pictures, divided by the number in a file."""
    sys.stdout.write(f"calibrating with {flat!s}\n")
    return np.mean(np.array(pictures), axis=0) / float(Path(flat).read_text())


def observation(gate: Path, flat: Path) -> str:
    """Return the graph as EAGLE posts it: its parameter `exposures` has no value."""
    with Graph("observation", "Takes pictures of the sky.") as graph:
        exposures = graph.parameter("exposures", type="Integer", minimum=1, maximum=8, description="Pictures taken")
        size = graph.parameter("size", 24, minimum=8, maximum=512, description="Pixels on a side")
        beginning = graph.parameter("gate", str(gate), description="A file that has to be there first")
        divisor = graph.parameter("flat", str(flat), description="A file with the number that pictures are divided by")
        with graph.each(seeds(exposures), copies=exposures, name="Exposures") as seed:
            picture = expose(seed, size, beginning)
        calibrate(picture, divisor).save("sky.npy")
    return graph.document().decode()
