"""Parses posted forms into bytes by field: ``application/x-www-form-urlencoded`` and ``multipart/form-data``.

EAGLE posts graphs of many megabytes in a form, and percent-encoded text is up to three times as long. It is decoded in
pieces, so that a form needs little more memory than its bytes.
"""

import re
from collections.abc import Mapping
from email.message import Message
from io import BytesIO
from types import MappingProxyType
from urllib.parse import unquote_to_bytes

import msgspec

from dropflow.api.routes import Request
from dropflow.errors import HttpError
from dropflow.failure import Problem
from translator.problem_codes import BAD_PARTITION, problem

_PIECE = 64 * 1024
"""Bytes that are decoded at a time: the library makes an object for each escape."""
_MOST_FIELDS = 400
"""Fields of a form with a file."""
_LONGEST_HEAD_BYTES = 8192
"""Bytes of the name of a field, or of the head of a part of a multipart form."""
_DISPOSITION = re.compile(rb"^content-disposition\s*:(.*)$", re.IGNORECASE | re.MULTILINE)


class Form(msgspec.Struct, frozen=True):
    """A posted form.

    Attributes
    ----------
    fields : mapping of str to bytes
        Contents by the name of the field.
    files : mapping of str to str
        Names of the files that fields came from.
    """

    fields: Mapping[str, bytes]
    files: Mapping[str, str] = MappingProxyType({})

    def text(self, name: str, default: str = "") -> str:
        """Return a field as text, without white space around it.

        Raises
        ------
        HttpError
            400: it is not UTF-8.
        """
        try:
            return self.fields.get(name, default.encode()).decode().strip()
        except UnicodeDecodeError as error:
            raise HttpError(400, f"the field {name!r} is not UTF-8", where=name) from error


def form_of(call: Request) -> Form:
    """Return the form in the body of a request. Raises as `read_form`."""
    return read_form(call.body, call.headers.get("Content-Type", ""))


def read_form(body: bytes, content_type: str) -> Form:
    """Return the fields of a form.

    Raises
    ------
    HttpError
        415 for a body that is not a form, 400 for a damaged one, or one with too many fields, or a field given twice.
    """
    header = Message()
    header["Content-Type"] = content_type
    kind = header.get_content_type()
    if kind == "application/x-www-form-urlencoded":
        return _urlencoded(body)
    if kind == "multipart/form-data":
        boundary = header.get_boundary("")
        if not boundary:
            raise HttpError(400, "the multipart form names no boundary")
        return _multipart(body, boundary.encode(errors="replace"))
    hint = "send application/x-www-form-urlencoded or multipart/form-data"
    raise HttpError(415, f"{content_type[:100]!r} is not a form", hint=hint)


def decode_percent(data: bytes | memoryview) -> bytes:
    """Return bytes with ``%XX`` and ``+`` decoded; a percent sign without two hexadecimal digits is kept."""
    decoded, start = BytesIO(), 0
    while start < len(data):
        end = min(start + _PIECE, len(data))
        # Do not cut an escape.
        cut = bytes(data[end - 2 : end]).rfind(b"%")
        end = end - 2 + cut if cut >= 0 and end < len(data) else end
        decoded.write(unquote_to_bytes(bytes(data[start:end]).replace(b"+", b" ")))
        start = end
    return decoded.getvalue()  # without a copy


def _urlencoded(body: bytes) -> Form:
    fields: dict[str, bytes] = {}
    if body.count(b"&") >= _MOST_FIELDS:
        raise HttpError(400, f"the form has more than {_MOST_FIELDS} fields")
    view, start = memoryview(body), 0  # slices of a memoryview are not copies
    while start < len(body):
        mark = body.find(b"&", start)
        end = mark if mark >= 0 else len(body)
        sign = body.find(b"=", start, end)
        middle = sign if sign >= 0 else end
        if end > start:
            name = view[start : min(middle, start + _LONGEST_HEAD_BYTES)]
            _add(fields, decode_percent(name), decode_percent(view[middle + 1 : end]))
        start = end + 1
    return Form(fields)


def _multipart(body: bytes, boundary: bytes) -> Form:
    """Parse RFC 7578: parts between delimiter lines, each with a few header lines."""
    fields: dict[str, bytes] = {}
    files: dict[str, str] = {}
    delimiter = b"\r\n--" + boundary
    at = 0 if body.startswith(delimiter[2:]) else body.find(delimiter)
    at = at + len(delimiter) - (2 if at == 0 else 0)
    while body[at : at + 2] != b"--":
        end = body.find(delimiter, at)
        head_end = body.find(b"\r\n\r\n", at, at + _LONGEST_HEAD_BYTES)
        if end < 0 or head_end < 0 or head_end > end or body[at : at + 2] != b"\r\n":
            raise HttpError(400, "the multipart form is damaged or cut off")
        if len(fields) >= _MOST_FIELDS:
            raise HttpError(400, f"the form has more than {_MOST_FIELDS} fields")
        name, file = _names(body[at:head_end])
        _add(fields, name.encode(), body[head_end + 4 : end])
        if file:
            files[name] = file
        at = end + len(delimiter)
    return Form(fields, MappingProxyType(files))


def _names(head: bytes) -> tuple[str, str]:
    """Return the names of the field and of its file."""
    match = _DISPOSITION.search(head.replace(b"\r\n", b"\n"))
    if match is None:
        raise HttpError(400, "a part of the multipart form has no name")
    named = {}
    for key in (b"name", b"filename"):
        # Browsers write a quote inside a name as %22.
        value = re.search(rb';\s*%b="([^"]*)"' % key, match[1], re.IGNORECASE)
        named[key] = value[1].decode(errors="replace").replace("%22", '"') if value else ""
    return named[b"name"], named[b"filename"]


def _add(fields: dict[str, bytes], name: bytes, value: bytes) -> None:
    known = name.decode(errors="replace")
    if known in fields:
        raise HttpError(400, f"the field {known[:60]!r} is given twice")
    fields[known] = value


# Reads numbers in fields of forms.


def whole_number(form: Form, name: str, default: int, *, least: int, most: int, problems: list[Problem]) -> int:
    """Return a field as a number, or add PT002 to `problems` and return the default."""
    text = form.text(name)
    if text in ("", "null", "None"):
        return default
    try:
        number = msgspec.convert(text, int, strict=False)
    except msgspec.ValidationError:
        number = None
    if number is None or not least <= number <= most:
        wrong = f"{name} is {text[:40]!r}, expected a whole number from {least} to {most}"
        problems.append(problem(BAD_PARTITION, wrong, where=name, hint=f"leave it out for {default}"))
        return default
    return number
