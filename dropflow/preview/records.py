"""What a preview of a content is, what may be asked for, and the messages of the process that makes it."""

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

__all__ = [
    "FIRST_LOOK",
    "PICTURE_LIMIT",
    "Line",
    "Preview",
    "PreviewAnswer",
    "PreviewQuery",
    "PreviewRequest",
    "picture_type",
]

PICTURE_LIMIT = 8 * 1024 * 1024
"""Bytes of the largest picture file that a page shows."""

# SVG is not in the list: it is a document that can contain scripts.
_PICTURES = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "image/webp"),
)


def picture_type(start: bytes) -> str:
    """Return the media type of a picture that browsers draw and that contains no scripts, or nothing."""
    return next((name for pattern, name in _PICTURES if pattern.match(start)), "")


class PreviewQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which part of a content is shown, and how.

    Attributes
    ----------
    part : int
        Index of a part, such as a unit of a FITS file or an array of a group; -1 for the first that has a picture.
    plane : int
        Index of a plane of an array with more than two axes.
    stretch : str
        How values become brightness.
    keep : float
        Per cent of the values between the darkest and the brightest; the others are cut off at both ends.
    colours : str
        ``grey`` or ``colour``.
    """

    part: Annotated[int, Meta(ge=-1, le=10_000)] = -1
    plane: Annotated[int, Meta(ge=0, le=2**53)] = 0
    stretch: Literal["linear", "sqrt", "log", "asinh"] = "linear"
    keep: Annotated[float, Meta(ge=50, le=100)] = 99.5
    colours: Literal["grey", "colour"] = "grey"


FIRST_LOOK = PreviewQuery()


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """An array with one axis as a line: the smallest and the largest value in each of equal intervals.

    Attributes
    ----------
    count : int
        Number of values along the axis.
    lows, highs : tuple of float or None
        None where an interval has no number.
    """

    count: int
    lows: tuple[float | None, ...]
    highs: tuple[float | None, ...]


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """A content as a page shows it.

    Attributes
    ----------
    kind : str
        ``nothing`` (it is empty), ``text``, ``code``, ``table``, ``picture`` (a file that browsers draw), ``array``,
        ``header`` (of a file that has no picture), ``directory``, or ``dump`` (bytes in hexadecimal).
    format : str
        Name of the format, for people.
    size : int or None
        Bytes of the whole content, if known.
    is_cut : bool
        Whether there is more than is shown.
    text : str
        Text, code or dump.
    columns, rows : tuple
        Of a table.
    facts : tuple of (str, str)
        Names and values, such as shape and type.
    parts : tuple of str
        Names of the parts that can be asked for; empty if there is only one.
    part, planes, plane : int
        What is shown of how many.
    width, height : int
        Of the picture; 0 if there is none.
    line : Line or None
        The plot of an array with one axis.
    header : str
        The header of the file, as text.
    notes : tuple of str
        What is left out, or only estimated.
    trouble : str
        Why the content cannot be shown as what it seems to be; empty if it can.
    """

    kind: Literal["nothing", "text", "code", "table", "picture", "array", "header", "directory", "dump"]
    format: str = ""
    size: int | None = None
    is_cut: bool = False
    text: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    parts: tuple[str, ...] = ()
    part: int = 0
    planes: int = 1
    plane: int = 0
    width: int = 0
    height: int = 0
    line: Line | None = None
    header: str = ""
    notes: tuple[str, ...] = ()
    trouble: str = ""


class PreviewRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A content, and what is wanted of it. Without `body` and `folder` it is a file, whose descriptor goes along.

    Attributes
    ----------
    query : PreviewQuery
        Which part.
    is_picture : bool
        Whether its picture is wanted, not its preview.
    name : str
        Of the file; the suffix may tell the format.
    body : bytes or None
        A content in memory.
    folder : str
        Path of a directory.
    """

    query: PreviewQuery
    is_picture: bool = False
    name: str = ""
    body: bytes | None = None
    folder: str = ""


class PreviewAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A preview, a picture, or why there is none.

    Attributes
    ----------
    trouble : str
        What is wrong with the content.
    bug : str
        The traceback of an exception that a reader should not raise.
    """

    preview: Preview | None = None
    picture: bytes = b""
    trouble: str = ""
    where: str = ""
    hint: str = ""
    bug: str = ""
