"""Numbers, times and names as people read them on a page."""

import datetime as dt
import unicodedata

__all__ = ["count", "per_second", "shown", "size", "span", "stamp"]

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_LONGEST = 400


def count(number: int) -> str:
    """A number of things: ``100,000``."""
    return f"{number:,}"


def span(seconds: float | None) -> str:
    """A duration: ``0.4 s``, ``12 s``, ``3 min 05 s``, ``2 h 07 min``, ``3 d 4 h``; a dash when nobody can tell."""
    if seconds is None or seconds < 0:
        return "–"  # noqa: RUF001 - a dash for people
    whole = round(seconds)
    if seconds < 10:  # noqa: PLR2004 - a digit after the point only where it says something
        return f"{seconds:.1f} s"
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE:02d} s"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE:02d} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"


def per_second(rate: float) -> str:
    """A rate: ``0.25/s``, ``12/s``, ``48,000/s``."""
    digits = 0 if rate >= 10 else 1 if rate >= 1 else 2  # noqa: PLR2004 - three digits that count
    return f"{rate:,.{digits}f}/s"


def size(number: int | None) -> str:
    """Bytes: ``17 B``, ``1.2 kB``, ``3.4 GB`` (powers of 1000); a dash when there are none to tell."""
    if number is None:
        return "–"  # noqa: RUF001 - a dash for people
    value, units = float(number), iter(("B", "kB", "MB", "GB", "TB", "PB", "EB"))
    unit = next(units)
    while value >= 999.5 and (larger := next(units, "")):  # noqa: PLR2004 - what rounds to 1000 takes the next unit
        value, unit = value / 1000, larger
    return f"{value:.0f} {unit}" if unit == "B" or value >= 99.95 else f"{value:.1f} {unit}"  # noqa: PLR2004 - as above


def stamp(seconds: float) -> str:
    """A time: ``2026-10-01 12:34:56 UTC``; a dash for one that has not come."""
    if seconds <= 0:
        return "–"  # noqa: RUF001 - a dash for people
    try:
        return f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, OSError, ValueError):
        return "–"  # noqa: RUF001 - a dash for people


def shown(text: str, longest: int = _LONGEST) -> str:
    """A name of somebody else, fit for a page: no control characters, and cut in the middle when it is very long.

    Names may hold anything. Line ends and other controls become spaces or the sign for what cannot be shown; the
    template escapes the rest.
    """
    if len(text) > longest:
        half = (longest - 1) // 2
        text = f"{text[:half]}…{text[-half:]}"
    return "".join(_sign(letter) for letter in text) or "(no name)"


def _sign(letter: str) -> str:
    if letter in "\t\r\n":
        return " "
    return "\ufffd" if unicodedata.category(letter) in ("Cc", "Cs") else letter
