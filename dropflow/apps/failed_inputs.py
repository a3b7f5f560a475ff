"""The inputs of an attempt that has failed, one line for each input and each argument of a function.

If a session asks for it, also the local variables of the function that raised.

Only data that the attempt has read already, or that are in memory or in a file of this node, are read: nothing is
fetched from a URL or from another node, and nothing is unpickled. A value with the name of a secret is replaced by
``***``.
"""

import os
import re
import stat
import sysconfig
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sized
from contextlib import suppress
from itertools import islice
from pathlib import Path
from types import FrameType, FunctionType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from dropflow.clock import SystemClock
from dropflow.errors import DropflowError
from dropflow.execution.content_location import Handle
from dropflow.files import FITS_START
from dropflow.formatting import few, format_size, plural, single_line
from dropflow.preview.source import BytesSource, OpenFileSource, Source
from dropflow.preview.text import as_text

if TYPE_CHECKING:
    from dropflow.apps.attempt import AttemptContext
    from dropflow.apps.attempt_input import AttemptInput

_MOST, _MOST_ALIKE = 16, 3
_LONGEST_LINE = 200
"""Characters of a line about an input or a local variable."""
_READ_SECONDS = 1.0
"""Seconds after which no further file of a format such as FITS is read."""
_START_BYTES = 4096
"""Bytes at the beginning of an input from which its line is made."""
_MOST_READ_BYTES = 16 << 20
"""Bytes of the largest file of a format such as FITS that is read for its line."""
_MOST_VALUES = 1 << 22
"""Most values of an array whose range is computed."""
_SEARCHED = 300
"""Most letters of a text in which secrets are searched: the time of the search grows with the square."""
_MOST_LOCALS = 30
"""Lines about local variables."""
_DROPFLOW = f"{Path(__file__).resolve().parents[1]}/"
_INSTALLED = (*{f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")}, "<frozen ")
_HIDDEN = "***"
_SECRET = r"(?:token|passw|pwd|secret|credential|api_?key|(?<![a-z])key(?![a-z]))"
_SECRET_NAME = re.compile(_SECRET, re.IGNORECASE)
_SECRET_VALUE = re.compile(rf"([\w-]*{_SECRET}[\w-]*[\"']?\s*[=:]\s*)\S.*|(//)[^/@\s]+(?=@)", re.IGNORECASE)


def input_lines(attempt: "AttemptContext", *, reads_formats: bool) -> tuple[str, ...]:
    """Return lines about the inputs of an attempt; never raises an `Exception`.

    Parameters
    ----------
    attempt : AttemptContext
        The attempt; its inputs still exist.
    reads_formats : bool
        Whether files of formats such as FITS are read: only in a process that runs applications of users.
    """
    clock = SystemClock()
    end = clock.monotonic() + _READ_SECONDS
    lines: list[str] = []
    with suppress(Exception):
        lines += islice(_lines(attempt, lambda: reads_formats and clock.monotonic() < end), _MOST + 1)
    if len(lines) > _MOST:
        lines[_MOST:] = ["and more"]
    return tuple(single_line(line, _LONGEST_LINE) for line in lines)


def _lines(attempt: "AttemptContext", may_read: Callable[[], bool]) -> Iterator[str]:
    values = attempt.values()
    ports = Counter(data.port for data in attempt.inputs)
    seen: Counter[str] = Counter()
    for data in attempt.inputs:
        title = data.port or "input"
        seen[data.port] += 1
        if seen[data.port] > _MOST_ALIKE:
            if seen[data.port] == ports[data.port]:
                yield f"{title}: and {ports[data.port] - _MOST_ALIKE:,} more"
            continue
        known = (values.pop(data.port),) if data.port in values and ports[data.port] == 1 else ()
        try:
            yield f"{title}: {', '.join(_of_input(attempt, data, known, may_read))}"
        except Exception as error:  # noqa: BLE001 - the attempt may have failed because of that
            yield f"{title}: {data.name}, cannot be read: {type(error).__name__}"
    yield from (f"{name} = {_HIDDEN if is_secret(name) else _value(value)}" for name, value in values.items())


def local_lines(error: BaseException, given: Container[str] = ()) -> tuple[str, ...]:
    """Return the local variables of the function of the user that raised; never raises an `Exception`.

    Parameters
    ----------
    error : BaseException
        The exception, with its traceback. If it is an error of dropflow with a cause, the traceback of the cause
        counts.
    given : container of str
        Lines that are left out, because the failure has these arguments already.
    """
    lines: list[str] = []
    with suppress(Exception):
        cause = error.__cause__ if isinstance(error, DropflowError) else None
        frame = _frame_of_user((cause or error).__traceback__)
        variables = {} if frame is None else frame.f_locals
        for name, value in variables.items():
            if name.startswith("__") or isinstance(value, ModuleType | FunctionType | type):
                continue
            if len(lines) == _MOST_LOCALS:
                lines.append("and more local variables")
                break
            line = single_line(f"{name} = {_HIDDEN if is_secret(name) else _value(value)}", _LONGEST_LINE)
            if line not in given:
                lines.append(f"local {line}")
    return tuple(lines)


def _frame_of_user(trace: TracebackType | None) -> FrameType | None:
    """Return the last frame outside of installed packages; if there is none, the last frame outside of dropflow."""
    user, last = None, None
    while trace is not None:
        frame, trace = trace.tb_frame, trace.tb_next
        file = frame.f_code.co_filename
        if not file.startswith(_DROPFLOW):
            last = frame
            if not file.startswith(_INSTALLED):
                user = frame
    return user or last


def _of_input(
    attempt: "AttemptContext", data: "AttemptInput", known: tuple[Any, ...], may_read: Callable[[], bool]
) -> Iterator[str]:
    yield data.name
    handle = data.handle
    if not data.ok or data.is_open or handle is None:
        yield "still being written" if data.is_open else data.state.name
        return
    if handle.kind in ("file", "directory"):
        yield Path(handle.location).name
    yield "at a URL" if handle.kind == "url" else format_size(handle.size)
    if is_secret(data.port) or is_secret(data.name):
        yield _HIDDEN
    elif known and not _is_path(known[0]):
        yield _value(known[0])
    elif not attempt.workspace.is_on_other_node(handle.location):
        yield from _content(handle, may_read)


def _content(handle: Handle, may_read: Callable[[], bool]) -> Iterator[str]:
    """Yield a description of a content in memory or in a file of this node, if it can be recognised."""
    if handle.kind == "bytes":
        yield from _seen(BytesSource(bytes(handle.body)), may_read)
    elif handle.kind == "file":
        descriptor = os.open(handle.location, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                yield from _seen(OpenFileSource(descriptor, Path(handle.location).name), may_read)
        finally:
            os.close(descriptor)


def _seen(source: Source, may_read: Callable[[], bool]) -> Iterator[str]:
    start = source.start(_START_BYTES)
    text = None if start.startswith(FITS_START) else as_text(start)  # headers of FITS files are text
    if text is not None:
        if text.strip():
            yield _value(text)
    elif source.size <= _MOST_READ_BYTES and may_read():
        from dropflow.preview.look import preview  # noqa: PLC0415 - it imports libraries of formats

        seen = preview(source)
        facts = dict(seen.facts)
        what = [part for part in (seen.format, facts.get("Type", ""), facts.get("Shape", "")) if part]
        if what:
            yield " ".join(what)
        if "Minimum" in facts:
            yield f"{facts['Minimum']} to {facts['Maximum']}"
        if "Not a number" in facts:
            yield f"{facts['Not a number']} not a number"
        if seen.trouble:
            yield seen.trouble


def _value(value: Any) -> str:  # noqa: PLR0911 - one line for each kind of value
    """Return a description of a value in a few words. Objects of users are not printed: that may take any time."""
    kind = type(value)
    if kind is str:
        start = value.strip().partition("\n")[0][:_SEARCHED]
        line = _SECRET_VALUE.sub(lambda match: f"{match[1] or match[2]}{_HIDDEN}", start)
        return repr(single_line(line, 100))
    if value is None or kind in (bool, int, float, complex):
        return f"{value!r:.100}"
    if isinstance(value, np.ndarray | np.generic):
        return ", ".join(_array(np.asarray(value)))
    if kind in (bytes, bytearray, memoryview):
        return f"{kind.__name__}, {format_size(len(value))}"
    if kind in (list, tuple):
        return f"{kind.__name__} of {len(value):,}" + (f", the first: {_value(value[0])}" if value else "")
    if kind is dict:
        names = [single_line(key, 30) if isinstance(key, str) else type(key).__name__ for key in islice(value, 20)]
        return f"dict of {len(value):,}: {few(names, 6)}"
    with suppress(Exception):
        return f"{kind.__name__} {_shape(value)}".rstrip()
    return kind.__name__


def _shape(value: Any) -> str:
    """Return shape and type of an array of another library, or the length of a collection."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return f"{getattr(value, 'dtype', '')} {shape}".strip()
    return f"of {len(value):,}" if isinstance(value, Sized) else ""


def _array(value: np.ndarray[Any, Any]) -> Iterator[str]:
    yield f"{value.dtype} {value.shape}" if value.shape else str(value.dtype)
    if value.dtype.kind not in "biuf" or not value.size:
        return
    part, note = value, ""
    if value.size > _MOST_VALUES:
        if not value.flags.c_contiguous:
            return
        part, note = value.reshape(-1)[:_MOST_VALUES], " in its first values"
    finite = part[np.isfinite(part)]
    if finite.size:
        yield f"{finite.min():.6g} to {finite.max():.6g}{note}"
    if finite.size < part.size:
        yield f"{plural(part.size - finite.size, 'value')} not a number{note}"


def _is_path(value: Any) -> bool:
    return isinstance(value, os.PathLike) or (type(value) is str and os.path.isabs(value))  # noqa: PTH117 - any text


def is_secret(name: str) -> bool:
    """Return whether a value with this name is to be hidden."""
    return _SECRET_NAME.search(name) is not None
