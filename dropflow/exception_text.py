"""The name, text and traceback of an exception that user code has raised.

`str()` of such an exception may raise, exit, or return something that is not a string, 100 MB of text, or characters
that UTF-8 cannot encode. The functions here raise nothing but `Interrupted`, which interrupts a `__str__` that
does not end. What they return can be sent and stored.
"""

import traceback
from types import TracebackType
from typing import Any

from dropflow.errors import Interrupted

__all__ = ["name_of", "sendable", "summary_of", "text_of", "trace_of"]

_LONGEST = 4000
_TEXT = 3000
_LINES = 40
_LINE = 2000
_NOTE = 50

_type_name = type.__dict__["__name__"].__get__  # a metaclass may have a property of that name


def name_of(error: BaseException) -> str:
    """Return the name of the exception's class."""
    return sendable(_type_name(type(error)), 200)


def text_of(error: BaseException) -> str:
    """Return ``str(error)``, or why it cannot be computed."""
    try:
        return sendable(str(error), _TEXT)
    except Interrupted:
        raise
    except BaseException as problem:  # noqa: BLE001 - __str__ is user code, which may raise anything
        return f"its text is not available: __str__ raised {name_of(problem)}"


def summary_of(error: BaseException) -> str:
    """Return the name and text of an exception, as in the last line of its traceback."""
    name, text = name_of(error), text_of(error)
    return f"{name}: {text}" if text else name


def trace_of(error: BaseException, frames: TracebackType | None) -> str:
    """Return the last lines of the traceback of `error`, from `frames` on."""
    try:
        lines = "".join(traceback.format_exception(type(error), error, frames)).splitlines()[-_LINES:]
        return "".join(sendable(line, _LINE) + "\n" for line in lines)
    except Interrupted:
        raise
    except BaseException as problem:  # noqa: BLE001 - as above: notes, causes and attributes are user code too
        return f"the traceback is not available: {name_of(problem)} was raised while it was formatted\n"


def sendable(text: Any, most: int = _LONGEST, *, keep_end: bool = False) -> str:
    """Return `text` as a plain string that UTF-8 can encode. One that is longer than `most` says how much is missing.

    Parameters
    ----------
    text : Any
        A string; for any other object, the name of its type is returned.
    most : int
        Characters of the result; more than 50.
    keep_end : bool
        Keep the end instead of the beginning.
    """
    if not isinstance(text, str):
        return f"<{_type_name(type(text))} in place of a text>"
    plain = text if type(text) is str else str.__str__(text)  # the methods of a subclass may do anything
    plain = _cut(plain, most, keep_end=keep_end)
    return plain if plain.isascii() else _cut(plain.encode(errors="backslashreplace").decode(), most, keep_end=keep_end)


def _cut(text: str, most: int, *, keep_end: bool) -> str:
    if len(text) <= most:
        return text
    kept = most - _NOTE
    note = f"{len(text) - kept} characters left out"
    return f"[{note} ...]{text[-kept:]}" if keep_end else f"{text[:kept]}[... {note}]"
