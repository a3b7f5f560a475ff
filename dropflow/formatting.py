"""Numbers, sizes, durations, times and names as text for people: the same on pages and in the terminal.

`dropflow/web/static/formatting.js` formats counts, durations and rates in the browser; a test compares the two.
"""

import codecs
import datetime as dt
import io
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

DASH = "\N{EN DASH}"
"""Stands for a value that is not known."""

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_LINE_CHARACTERS = 400
"""Characters of foreign text on one line, if the caller gives no other number."""
_LAST_LINES = 20
"""Lines that are shown of the end of a log."""
# The control characters of ASCII and Latin-1, and those that turn the direction of text.
_CONTROLS = {
    number: chr(number).encode("unicode_escape").decode()
    for number in (*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
    if chr(number) not in "\t\n"
}
_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?inf)\s*(.*?)\s*")
SECONDS: Mapping[str, float] = MappingProxyType(
    {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0}
)
"""Seconds of each unit of time."""


def few(names: Sequence[str], most: int = 4) -> str:
    """Return the first names with commas between, and how many more there are.

    Examples
    --------
    >>> few(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def did_you_mean(name: str, known: Iterable[str], *, most: int = 1, cutoff: float = 0.6) -> str:
    """Return a hint with the known names that are like a wrong one: ``did you mean 'a'?``; empty if none is."""
    from difflib import get_close_matches  # noqa: PLC0415 - only needed for a message

    near = get_close_matches(name, list(known), most, cutoff)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else ""


def format_count(number: int) -> str:
    """Return a number of things: ``100,000``."""
    return f"{number:,}"


def plural(number: int, noun: str) -> str:
    """Return a number and its noun: ``1 drop``, ``100,000 drops``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_quantity(number: float) -> str:
    """Return a measure with four significant digits, or all digits of a whole number: ``10,003``, ``0.25``."""
    is_exact = abs(number) < 10**12 and (abs(number) >= 10**3 or number == int(number))
    return f"{number:,.0f}" if is_exact else f"{number:,.4g}"


def format_rate(rate: float) -> str:
    """Return a number per second: ``0.25/s``, ``12/s``, ``48,000/s``."""
    digits = 0 if rate >= 10 else 1 if rate >= 1 else 2
    return f"{rate:,.{digits}f}/s"


def format_duration(seconds: float | None) -> str:
    """Return a duration: ``0.24 s``, ``12.3 s``, ``3 min 05 s``, ``2 h 07 min``, ``3 d 4 h``; a dash for None."""
    if seconds is None or seconds < 0:
        return DASH
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    rounded = round(seconds)
    if rounded < _HOUR:
        return f"{rounded // _MINUTE} min {rounded % _MINUTE:02d} s"
    if rounded < _DAY:
        return f"{rounded // _HOUR} h {rounded % _HOUR // _MINUTE:02d} min"
    return f"{rounded // _DAY} d {rounded % _DAY // _HOUR} h"


def format_remaining(seconds: float | None) -> str:
    """Return how much time is left by an estimate, as `format_duration`; below a second as one text."""
    return "under 1 s" if seconds is not None and seconds < 1 else format_duration(seconds)


def format_quiet(seconds: float) -> str:
    """Return for how long no drop has settled: ``no drop settled for 3 min 05 s``."""
    return f"no drop settled for {format_duration(seconds)}"


def format_brief(seconds: float) -> str:
    """Return a duration with three digits below a second, ``12.3 µs`` or ``456 ms``, and as `format_duration` above."""
    if seconds >= 0.9995 or seconds < 0:
        return format_duration(seconds)
    if seconds < 0.9995e-3:
        return f"{seconds * 1e6:.3g} µs" if seconds else "0 s"
    return f"{seconds * 1e3:.3g} ms"


def format_size(number: float | None) -> str:
    """Return a number of bytes with a decimal unit: ``17 Bytes``, ``1.2 kB``, ``3.4 GB``; a dash for None."""
    from humanize import naturalsize  # noqa: PLC0415 - commands that print no size do not pay for the import

    return DASH if number is None else naturalsize(number)


def format_time(seconds: float) -> str:
    """Return a time, given in seconds since the epoch: ``2026-10-01 12:34:56 UTC``; a dash for 0."""
    if seconds <= 0:
        return DASH
    try:
        return f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, OSError, ValueError):
        return DASH


def format_stamp(seconds: float) -> str:
    """Return a time as logs have it: UTC, with milliseconds, ``2026-10-01T12:34:56.789``."""
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]


def single_line(text: str, max_length: int = _LINE_CHARACTERS) -> str:
    """Return foreign text on one line without control characters, cut in the middle if it is too long.

    Names may hold any character. Line ends become spaces, other control characters, and those that turn the direction
    of text, U+FFFD. Escaping for HTML is left to the template.
    """
    if len(text) > max_length:
        half = (max_length - 1) // 2
        text = f"{text[:half]}\N{HORIZONTAL ELLIPSIS}{text[-half:]}"
    return "".join(_printable(letter) for letter in text)


def with_plain_lines(text: str) -> str:
    """Return a text whose lines end with a line feed only. Browsers post other line ends."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def last_lines(content: bytes) -> str:
    """Return the last lines of the end of a log."""
    return "\n".join(content.decode(errors="replace").splitlines()[-_LAST_LINES:])


def value_text(value: object, most: int) -> str:
    """Return a text as it is, and another value as JSON; at most this many characters of it."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= most else f"{text[:most]}\N{HORIZONTAL ELLIPSIS}"


def printable(text: str) -> str:
    r"""Return foreign text for a terminal: line ends and tabs stay, other control characters become ``\x1b``.

    Otherwise the text of a log could move the cursor, overwrite what was printed, or send commands to the terminal.
    """
    return with_plain_lines(text).translate(_CONTROLS)


def printable_chunks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Return foreign text that comes in chunks for a terminal, as `printable` does; a chunk may end anywhere."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    lines = io.IncrementalNewlineDecoder(decoder, translate=True)
    for chunk in chunks:
        yield printable(lines.decode(chunk)).encode()
    yield printable(lines.decode(b"", final=True)).encode()


def _printable(letter: str) -> str:
    if letter in "\t\r\n\N{LINE SEPARATOR}\N{PARAGRAPH SEPARATOR}":
        return " "
    is_control = ord(letter) in _CONTROLS or unicodedata.category(letter) == "Cs"
    return "\N{REPLACEMENT CHARACTER}" if is_control else letter


# Reads quantities with units, such as ``128 MiB/s``, ``16 GiB`` and ``10 ms``.

_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_PREFIXES |= {f"{sign}i": 1024.0**power for power, sign in enumerate("KMGTP", 1)}

MEMORY: Mapping[str, float] = MappingProxyType(
    {"": 1.0} | {f"{prefix}B": factor for prefix, factor in _PREFIXES.items()}
)
"""Bytes of each unit of memory."""

BANDWIDTH: Mapping[str, float] = MappingProxyType(
    {"": 1.0}
    | {f"{prefix}B/s": factor for prefix, factor in _PREFIXES.items()}
    | {f"{prefix}{bit}": factor / 8 for prefix, factor in _PREFIXES.items() for bit in ("bit/s", "b/s", "bps")}
)
"""Bytes per second of each unit of bandwidth."""


def quantity(value: Any, units: Mapping[str, float]) -> float | None:
    """Return a number, or a text of a number and a unit, in the basic unit; None if it is neither.

    Parameters
    ----------
    value : Any
        For example 1024 or "1 KiB".
    units : mapping of str to float
        One of the tables of this module.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        try:
            return None if math.isnan(value) else float(value)
        except OverflowError:
            return None
    match = _NUMBER.fullmatch(value) if isinstance(value, str) else None
    factor = units.get(match[2]) if match else None
    return None if match is None or factor is None else float(match[1]) * factor
