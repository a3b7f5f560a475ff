"""Durations as options: a number with a unit, such as ``90s``, ``10m``, ``2h`` or ``1d``."""

import re

import click

__all__ = ["Duration", "parse_duration"]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_FORM = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


def parse_duration(text: str) -> float | None:
    """Return a duration in seconds; None if the text is none.

    Examples
    --------
    >>> parse_duration("10m"), parse_duration("1.5h"), parse_duration("10")
    (600.0, 5400.0, None)
    """
    found = _FORM.fullmatch(text)
    return float(found[1]) * _UNITS[found[2]] if found else None


class Duration(click.ParamType[float]):
    """Type of an option."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the duration in seconds."""
        if isinstance(value, float):
            return value
        seconds = parse_duration(str(value))
        if seconds is None:
            self.fail(f"{value!r} is not a duration; give a number with a unit, such as 90s, 10m, 2h or 1d", param, ctx)
        return seconds
