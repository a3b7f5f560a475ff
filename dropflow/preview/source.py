"""Contents whose parts can be read one by one: bytes in memory, a file, or the files of a directory.

Files are read, and not mapped: a mapped file that another process makes shorter ends this process.
"""

import contextlib
import gzip
import io
import os
import re
import stat
import warnings
import zlib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import Meta

from dropflow.errors import BadFileError, install_hint

HEAD_BYTES = 4
"""Bytes of the length before each message between a node and its preview worker."""
PICTURE_LIMIT = 8 * 1024 * 1024
"""Bytes of the largest picture file that a page shows."""

# SVG is not in the list: it is a document that can contain scripts.
_PICTURES = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "image/webp"),
)
_GZIP = b"\x1f\x8b"
_UNPACKED_BYTES = 64 << 20
"""Bytes of a compressed content that are unpacked."""

# What a preview of a content is, what may be asked for, and the messages of the process that makes it.


def picture_type(start: bytes) -> str:
    """Return the media type of a picture that browsers draw and that contains no scripts, or nothing."""
    return next((name for pattern, name in _PICTURES if pattern.match(start)), "")


class PreviewQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part of a content that is shown, and the form.

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
    left, top, right, bottom : int
        Which values of the plane, counted from the upper left corner of its picture; 0 as right or bottom is the edge.
        Of a single value, the facts are the value and where it is, in the world coordinates of a FITS file, too.
    number : str
        What is shown of complex values: ``amplitude`` or ``phase``, which is in radians.
    sort, order : str
        Name of the column by which the rows of a table are sorted, and ``ascending`` or ``descending``.
    column, condition, value : str
        Only rows are shown whose value in this column contains, is, is not, is less or is greater than that value.
    """

    part: Annotated[int, Meta(ge=-1, le=10_000)] = -1
    plane: Annotated[int, Meta(ge=0, le=2**53)] = 0
    stretch: Literal["linear", "sqrt", "log", "asinh"] = "linear"
    keep: Annotated[float, Meta(ge=50, le=100)] = 99.5
    colours: Literal["grey", "colour"] = "grey"
    left: Annotated[int, Meta(ge=0, le=2**53)] = 0
    top: Annotated[int, Meta(ge=0, le=2**53)] = 0
    right: Annotated[int, Meta(ge=0, le=2**53)] = 0
    bottom: Annotated[int, Meta(ge=0, le=2**53)] = 0
    number: Literal["amplitude", "phase"] = "amplitude"
    sort: Annotated[str, Meta(max_length=300)] = ""
    order: Literal["ascending", "descending"] = "ascending"
    column: Annotated[str, Meta(max_length=300)] = ""
    condition: Literal["contains", "is", "is not", "less", "greater"] = "contains"
    value: Annotated[str, Meta(max_length=300)] = ""

    @property
    def arranges(self) -> bool:
        """Whether the rows of a table are sorted or filtered."""
        return bool(self.sort or self.column)


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
        Columns and rows of a table.
    facts : tuple of (str, str)
        Names and values, such as shape and type.
    parts : tuple of str
        Names of the parts that can be asked for; empty if there is only one.
    part, planes, plane : int
        What is shown of how many.
    width, height : int
        Size of the picture; 0 if there is none.
    across, down : int
        Values of the whole plane in a row and in a column of its picture.
    region : tuple of int
        Left, top, right and bottom of what is shown, as in `PreviewQuery`.
    scale : tuple of float
        Values at 0, 25, 50, 75 and 100 % of the colours.
    is_complex : bool
        Whether values are complex numbers.
    line : Line or None
        The plot of an array with one axis.
    header : str
        The header of the file, as text.
    notes : tuple of str
        Parts that are left out, or only estimated.
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
    across: int = 0
    down: int = 0
    region: tuple[int, int, int, int] = (0, 0, 0, 0)
    scale: tuple[float, ...] = ()
    is_complex: bool = False
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
        Name of the file; the suffix may tell the format.
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
        The problem with the content.
    bug : str
        The traceback of an exception that a reader should not raise.
    """

    preview: Preview | None = None
    picture: bytes = b""
    trouble: str = ""
    where: str = ""
    hint: str = ""
    bug: str = ""


class Source(Protocol):
    """A content of known size."""

    name: str
    size: int

    def read(self, at: int, count: int) -> bytes:
        """Return `count` bytes from `at` on.

        Raises
        ------
        BadFileError
            There are fewer.
        """
        ...

    def start(self, count: int) -> bytes:
        """Return the first `count` bytes, or all if there are fewer."""
        ...


class BytesSource:
    """A content in memory.

    Parameters
    ----------
    content : bytes
        The content.
    name : str
        Its name; the suffix may tell the format.
    """

    def __init__(self, content: bytes, name: str = "") -> None:
        self.name = name
        self.size = len(content)
        self._content = content

    def read(self, at: int, count: int) -> bytes:
        """Return `count` bytes from `at` on."""
        data = self._content[at : at + count]
        return _checked(data, at, count, self.size)

    def start(self, count: int) -> bytes:
        """Return the first bytes."""
        return self._content[:count]


class OpenFileSource:
    """An open file. The caller closes the descriptor.

    Parameters
    ----------
    descriptor : int
        Descriptor of a regular file.
    name : str
        Its name.
    """

    def __init__(self, descriptor: int, name: str = "") -> None:
        self.name = name
        self.size = os.fstat(descriptor).st_size
        self._descriptor = descriptor

    def read(self, at: int, count: int) -> bytes:
        """Return `count` bytes from `at` on."""
        return _checked(self._some(at, count), at, count, self.size)

    def start(self, count: int) -> bytes:
        """Return the first bytes."""
        return self._some(0, min(count, self.size))

    def _some(self, at: int, count: int) -> bytes:
        if at + count > self.size:
            return b""
        pieces, left = [], count
        try:
            while left and (piece := os.pread(self._descriptor, min(left, 1 << 24), at + count - left)):
                pieces.append(piece)
                left -= len(piece)
        except OSError as error:
            raise BadFileError(f"it cannot be read: {error.strerror}", where=self.name) from error
        return b"".join(pieces)


class DirectorySource:
    """The files below a directory. Symbolic links are not followed.

    Parameters
    ----------
    root : Path
        The directory.
    """

    def __init__(self, root: Path) -> None:
        self.name = root.name
        self._root = root.resolve()

    @property
    def path(self) -> Path:
        """The directory, for libraries that open files by themselves."""
        return self._root

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator[OpenFileSource | None]:
        """Open the file `name` below the directory until the end of the context; None if there is none.

        Raises
        ------
        BadFileError
            It is not a regular file, or cannot be read.
        """
        path = self._root.joinpath(name)
        try:
            if path.parent.resolve() != path.parent or self._root not in (path.parent, *path.parent.parents):
                raise BadFileError(f"{name} is behind a symbolic link, which is not followed")
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            yield None
            return
        except (OSError, ValueError) as error:
            raise BadFileError(f"{name} cannot be read: {error}") from error
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise BadFileError(f"{name} is not a regular file")
            yield OpenFileSource(descriptor, name)
        finally:
            os.close(descriptor)

    def read(self, name: str, most: int) -> bytes | None:
        """Return the content of the file `name` below the directory; None if there is none.

        Raises
        ------
        BadFileError
            It has more than `most` bytes, is not a regular file, or cannot be read.
        """
        with self.opened(name) as source:
            if source is not None and source.size > most:
                raise BadFileError(f"{name} has {source.size} bytes; at most {most} are read")
            return None if source is None else source.start(most)

    def entries(self, most: int) -> list[tuple[str, int]]:
        """Return names and sizes of at most `most` files below the directory, sorted within each directory."""
        files: list[tuple[str, int]] = []
        waiting = [self._root]
        while waiting and len(files) < most:
            folder = waiting.pop()
            try:
                with os.scandir(folder) as listing:
                    entries = sorted((entry for entry, _ in zip(listing, range(most), strict=False)), key=_name)
            except OSError:
                continue
            for entry in entries:
                try:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
                    elif len(files) < most:
                        name = str(Path(entry.path).relative_to(self._root))
                        files.append((name, entry.stat(follow_symlinks=False).st_size))
                except OSError:
                    continue  # it is deleted meanwhile
        return sorted(files)


def _name(entry: "os.DirEntry[str]") -> str:
    return entry.name


def _checked(data: bytes, at: int, count: int, size: int) -> bytes:
    if len(data) != count:
        raise BadFileError(f"it is cut off: it has {size} bytes, and should have {at + count} at least")
    return data


class SourceStream(io.RawIOBase):
    """A content as a stream, for libraries."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self._source, self._at = source, 0

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def seekable(self) -> bool:
        """Return that it can be read from any place on."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to a place."""
        self._at = max(offset + (0, self._at, self._source.size)[whence], 0)
        return self._at

    def read(self, count: int = -1, /) -> bytes:
        """Return the next bytes; fewer at the end."""
        left = max(self._source.size - self._at, 0)
        data = self._source.read(self._at, left if count is None or count < 0 else min(count, left))
        self._at += len(data)
        return data


def library(module: str, contents: str, *, extra: str = "views") -> Any:
    """Return a module of an optional package that reads some contents.

    Raises
    ------
    BadFileError
        It is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        text = f"{contents} need the package {error.name}, which is not installed on the node that holds the content"
        raise BadFileError(text, hint=install_hint(extra)) from error


@contextlib.contextmanager
def reading(what: str) -> Iterator[None]:
    """Raise BadFileError for all that a library raises, and drop its warnings: a damaged file can cause any error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (BadFileError, MemoryError):
        raise
    except Exception as error:
        raise BadFileError(f"{what} cannot be read: {str(error).strip() or type(error).__name__}") from error


# Contents that are compressed by gzip: a bounded part of them, decompressed into memory.


def is_gzip(start: bytes) -> bool:
    """Return whether a content that begins so is compressed by gzip."""
    return start.startswith(_GZIP)


def unpacked(source: Source) -> tuple[BytesSource, bool]:
    """Return what is compressed, or its first 64 MiB, and whether that is all of it.

    Raises
    ------
    BadFileError
        It is damaged.
    """
    try:
        with gzip.GzipFile(fileobj=SourceStream(source), mode="rb") as stream:
            content = stream.read(_UNPACKED_BYTES + 1)
    except EOFError as error:
        raise BadFileError("it is cut off: the end of the gzip stream is missing") from error
    except (OSError, zlib.error) as error:
        raise BadFileError(f"it is not a gzip file: {error}") from error
    shown = content[:_UNPACKED_BYTES]
    return BytesSource(shown, source.name.removesuffix(".gz")), len(shown) == len(content)
