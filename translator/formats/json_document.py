"""Reading of graph files, and parsing of JSON documents, with limits on size and depth.

Size, encoding and depth are checked before the bytes are parsed, so that a hostile or broken file takes neither memory
nor time, and cannot exhaust the stack of this or a later stage.
"""

import re
from codecs import getincrementaldecoder
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from dropflow.errors import BadFileError
from dropflow.failure import Problem
from dropflow.graph.nesting import too_deep
from translator.options import ReadOptions
from translator.problem_codes import problem

_BOM = b"\xef\xbb\xbf"
_CHUNK = 256 * 1024
_BYTE = re.compile(r"\(byte (\d+)\)")
_SHOWN = 40


class JsonDocument(NamedTuple):
    """The result of parsing: the value, or the reason why there is none."""

    value: Any
    problems: tuple[Problem, ...]


def parse(data: bytes, options: ReadOptions) -> JsonDocument:
    """Parse `data` as JSON (RFC 8259, UTF-8, with or without a byte order mark).

    Parameters
    ----------
    data : bytes
        The whole document.
    options : ReadOptions
        Limits on its size and depth.

    Returns
    -------
    JsonDocument
        Without value, and with one finding ``LG001``, if `data` is not accepted.
    """
    if len(data) > options.max_bytes:
        return _refuse(
            f"the document has {len(data):,} bytes, more than the {options.max_bytes:,} that are allowed",
            "a graph of this size is probably unrolled; give its logical graph instead",
        )
    data = data.removeprefix(_BOM)
    if not data or data.isspace():
        return _refuse("the document is empty", "save the graph again in the editor, and check that the file arrived")
    if too_deep(data, options.max_depth):
        return _refuse(
            f"lists and objects are nested more than {options.max_depth} levels deep",
            "graphs are never nested this deeply: the file is not a graph, or is damaged",
        )
    try:
        return JsonDocument(msgspec.json.decode(data), ())
    except (
        msgspec.DecodeError,
        ValueError,
        RecursionError,
    ) as fault:  # ValueError: an integer of 5,000 digits, bad UTF-8
        return _explain(data, fault)


def _refuse(text: str, hint: str) -> JsonDocument:
    return JsonDocument(None, (problem("LG001", text, hint=hint),))


def _explain(data: bytes, fault: Exception) -> JsonDocument:
    decoder = getincrementaldecoder("utf-8")()
    for start in range(0, len(data), _CHUNK):
        try:
            decoder.decode(data[start : start + _CHUNK], final=start + _CHUNK >= len(data))
        except UnicodeDecodeError as wrong:
            text = f"the document is not UTF-8 text: {wrong.reason} near byte {start + wrong.start}"
            return _refuse(text, _encoding_hint(data))
    return _refuse(f"the document is not JSON: {_place(str(fault), data)}", _syntax_hint(data))


def _place(text: str, data: bytes) -> str:
    """Return the message of the parser, with line and column instead of the byte."""
    found = _BYTE.search(text)
    if not found:
        return text[:1].lower() + text[1:]
    byte = int(found[1])
    line = data.count(b"\n", 0, byte) + 1
    column = byte - data.rfind(b"\n", 0, byte)
    near = data[byte : byte + _SHOWN].decode("utf-8", "replace").splitlines()
    reason = text[: found.start()].removeprefix("JSON is malformed: ").strip()
    return f"{reason} in line {line}, column {column}" + (f", at {near[0]!r}" if near else "")


def _encoding_hint(data: bytes) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "this looks like UTF-16: save the file as UTF-8"
    return "save the file as UTF-8; if it is compressed or an archive, unpack it first"


def _syntax_hint(data: bytes) -> str:
    head = data[:_CHUNK].lstrip()[:1]
    if head == b"<":
        return "this looks like a web page or XML: download the raw file"
    if re.search(rb"\b(NaN|-?Infinity)\b", data):
        return "JSON has no NaN and no Infinity: write the number as text, or leave it out"
    if head not in (b"{", b"["):
        return "a graph is a JSON object: give a .graph file that EAGLE saved"
    return "the file is cut off or was edited by hand: save it again in the editor"


# Reading of graph files, with clear errors.


def read_file(path: Path, options: ReadOptions | None = None) -> bytes:
    """Return the bytes of a graph file.

    Parameters
    ----------
    path : Path
        A regular file or a pipe.
    options : ReadOptions, optional
        At most `max_bytes` are read.

    Raises
    ------
    BadFileError
        There is no such file, it is a directory, there is no permission to read it, or it is too large.
    """
    limit = (options or ReadOptions()).max_bytes
    where = str(path)
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except FileNotFoundError:
        raise BadFileError("there is no such file", where=where, hint=_neighbour(path)) from None
    except IsADirectoryError:
        raise BadFileError("this is a directory", where=where, hint="give a graph file in it") from None
    except PermissionError:
        raise BadFileError("no permission to read this file", where=where, hint="check its owner and mode") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadFileError(f"the file cannot be read: {reason}", where=where) from error
    if len(data) > limit:
        raise BadFileError(
            f"the file has more than the {limit:,} bytes that are allowed",
            where=where,
            hint="give the logical graph, which is small, or a .dfg file",
        )
    return data


def _neighbour(path: Path) -> str:
    """Return a hint with a similar name in the directory."""
    from difflib import get_close_matches  # noqa: PLC0415 - only needed for a message

    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return f"there is no directory {path.parent} either"
    near = get_close_matches(path.name, names, 1)
    return f"did you mean {near[0]!r}?" if near else "check the spelling"
