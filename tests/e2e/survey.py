"""A graph of any size, whose applications do next to nothing: some fail, some write a log, and the last one waits."""

from pathlib import Path
from threading import Event

import numpy as np

from dropflow import Graph, app

DROPS_PER_FIELD = 5


@app
def seeds(count: int) -> list[int]:
    """Return different seeds."""
    return list(range(count))


@app
def observe(seed: int) -> int:
    """Return the seed. Of 20, one fails with a text of its own, one with the same text as others; one prints."""
    if seed % 20 == 7:
        raise ValueError(f"antenna {seed} has no data")
    if seed % 20 == 9:
        raise OSError("the correlator does not answer")
    if seed % 20 == 11:
        print(f"field {seed} is flagged")  # noqa: T201 - what is printed is in the log
    return seed


@app
def calibrate(value: int) -> int:
    """Return the value."""
    return value


@app
def mean(values: list[int], gate: str) -> object:
    """Return a picture, once there is a file."""
    while not Path(gate).exists():
        Event().wait(0.02)
    return np.arange(1024.0).reshape(32, 32) + len(values)


def survey(gate: Path, fields: int) -> str:
    """Return a graph of five drops for each field, which are independent of each other, and five more."""
    with Graph("survey", "Observes many fields.") as graph:
        with graph.each(seeds(fields), copies=fields, name="Fields") as seed:
            value = calibrate(observe(seed))
        mean.options(input_error_threshold=100)(value, str(gate)).save("mean.npy")
    return graph.document().decode()
