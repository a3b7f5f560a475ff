"""Functions for a palette."""

import math
from collections.abc import Callable
from typing import Any, Literal

from dropflow import OutputPath, app

__all__ = ["Model", "configure", "fit", "later", "many", "plot"]

SCALE = 3.0


def scaled(value: float) -> float:
    """Not in ``__all__``; `fit` uses it."""
    return SCALE * value


@app(n_tries=3, memory="1 GB")
def fit(
    visibilities: list[float], order: int = 2, window: Literal["hann", "box"] = "box", taper: float | None = None
) -> float:
    """Fit fringes.

    Parameters
    ----------
    visibilities
        The data.
    order : int
        Order of the
        polynomial.

    Returns
    -------
    delay : float
        The delay.
    """
    return scaled(math.fsum(visibilities)) + order + len(window) + (taper or 0)


def plot(model: Any, picture: OutputPath, dpi: int = 100) -> None:
    """Draw a model."""
    with open(picture, "w", encoding="utf-8") as file:  # noqa: PTH123 - as users write it
        file.write(f"{model} {dpi}")


def many(*values: float, by: Callable[..., Any] = max) -> float:
    """Return one of the values."""
    value: float = by(values)
    return value


def configure(func_name: str) -> str:
    """Have an argument that nodes use themselves."""
    return func_name


async def later() -> int:
    """Cannot be an application."""
    return 1


class Model:
    """A model of fringes."""

    def __init__(self, order: int = 1) -> None:
        self.order = order

    def predict(self, times: list[float]) -> list[float]:
        """Return the fringes at some times."""
        return [self.order * time for time in times]

    @staticmethod
    def names() -> list[str]:
        """Return the names of models."""
        return ["polynomial"]
