"""Numbers and names as people read them on a page."""

import datetime as dt

from dropflow.problems import Problem, Severity

__all__ = ["amount", "counted", "grouped", "shape", "shown", "size", "span", "stamp"]

_MINUTE = 60
_LONGEST = 400


def counted(number: int, word: str) -> str:
    """``1 drop``, ``100,000 drops``."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def amount(number: float) -> str:
    """A measure, with as many digits as say something: ``1,234``, ``0.25``, ``1.5e+12``."""
    return f"{number:,.0f}" if number == int(number) and abs(number) < 10**12 else f"{number:,.4g}"


def span(seconds: float) -> str:
    """A duration: ``0.4 s``, ``12 s``, ``3 min 05 s``."""
    if seconds < 10:  # noqa: PLR2004 - a digit after the point only where it says something
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    return f"{whole // _MINUTE} min {whole % _MINUTE:02d} s" if whole % _MINUTE else f"{whole // _MINUTE} min"


def size(number: int) -> str:
    """Bytes: ``17 B``, ``1.2 kB``, ``3.4 GB`` (powers of 1000)."""
    value, units = float(number), ["B", "kB", "MB", "GB", "TB"]
    while value >= 999.5 and len(units) > 1:  # noqa: PLR2004 - what rounds to 1000 takes the next unit
        value /= 1000
        del units[0]
    return f"{value:.0f} {units[0]}" if value >= 99.95 or units[0] == "B" else f"{value:.1f} {units[0]}"  # noqa: PLR2004


def stamp(seconds: float) -> str:
    """A time: ``2026-10-01 12:34:56 UTC``; nothing for one that has not come."""
    if seconds <= 0:
        return ""
    return f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%Y-%m-%d %H:%M:%S} UTC"


def shape(lengths: tuple[int, ...]) -> str:
    """The shape of an index space: ``4 x 100``, or ``1``."""
    return " \N{MULTIPLICATION SIGN} ".join(f"{length:,}" for length in lengths) or "1"


def shown(text: str, longest: int = _LONGEST) -> str:
    """A name from outside on one line, cut where it gets too long; escaping is the template's business."""
    line = "".join(sign if sign.isprintable() else " " for sign in text[: 4 * longest])
    return line if len(line) <= longest else f"{line[:longest]}\N{HORIZONTAL ELLIPSIS}"


def grouped(problems: tuple[Problem, ...]) -> list[tuple[str, list[Problem]]]:
    """Findings by severity, the worst first, with a heading for each kind."""
    words = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
    found = []
    for severity, word in words.items():
        some = [problem for problem in problems if problem.severity is severity]
        if some:
            found.append((counted(len(some), word), some))
    return found
