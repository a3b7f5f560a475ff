"""Identifiers. Inside dropflow a drop is a small integer; its text id (`oid`) exists only at borders."""

import re
import zlib
from time import gmtime, strftime
from typing import NewType
from urllib.parse import quote, unquote

DropId = NewType("DropId", int)
"""Row of a drop in its physical graph, from 0."""

SESSION_NAME = r"^\w[^/\\\x00-\x1f\x7f-\x9f\u2028\u2029]{0,99}$(?!\n)"
"""Pattern of the names of sessions, for records and the API; `is_session_name` is stricter."""

USER_NAME = "[a-z][a-z0-9_.-]{0,31}"
"""Pattern of the names of users (`dropflow.api.signing.UserKey`)."""

SESSION_NAME_HINT = (
    "at most 100 printable characters (percent-encoded, 200) without slashes, a letter, digit or underscore first"
)

_LONGEST_FILE_STEM = 90
"""Characters of the readable part of the name of a file for a drop."""
_LONGEST_SESSION_STEM = 60
"""Characters of the name of a graph in the name of a session."""
_LONGEST_SEGMENT = 200
"""Characters of the name of the directory of a session."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def safe_name(text: str, *, fallback: str = "graph") -> str:
    """Return `text` as one safe path segment: letters, digits, dot, dash and underscore only.

    It does not start with a dot or a dash and has at most 100 characters, so that it can neither leave a directory nor
    be taken for an option.
    """
    return _UNSAFE.sub("_", text).lstrip(".-")[:100] or fallback


def dated_session_name(graph: str, now: float) -> str:
    """Return the name of a graph with the UTC time appended, such as ``imaging-20261121-073600-250``."""
    stem = safe_name(graph)[:_LONGEST_SESSION_STEM].strip("._-") or "graph"
    return f"{stem}-{strftime('%Y%m%d-%H%M%S', gmtime(now))}-{int(now * 1000) % 1000:03d}"


def is_session_name(text: str) -> bool:
    """Return whether `text` can be the name of a session.

    At most 100 printable characters, a letter, digit or underscore first; blanks, colons and plus signs are allowed,
    as in the ids that clients of DALiuGE choose, slashes and backslashes are not.
    """
    return (
        re.fullmatch(SESSION_NAME, text) is not None
        and text.isprintable()
        and len(session_directory_name(text)) <= _LONGEST_SEGMENT
    )


def session_directory_name(session: str) -> str:
    """Return the name of the directory of a session: its own name, percent-encoded, so it is unique.

    Letters and digits of ASCII, dot, dash, underscore and tilde stay; the result is always a safe path segment.
    """
    quoted = quote(session, safe="")
    return f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted


def session_of_directory(name: str) -> str:
    """Return the session whose directory has this name, from `session_directory_name`."""
    return unquote(name)


def drop_file_name(oid: str) -> str:
    """Return the name of the files of the drop `oid`, such as its log: a safe path segment, different for each drop.

    An id that is not a safe segment, or is too long for one, gets eight digits of its CRC-32.
    """
    name = safe_name(oid, fallback="drop")
    if name == oid:
        return name
    # The index is at the end of an id, so a long one loses its middle.
    safe = _UNSAFE.sub("_", oid).lstrip(".-") or "drop"
    short = safe if len(safe) <= _LONGEST_FILE_STEM else f"{safe[:40]}~{safe[-49:]}"
    return f"{short}~{zlib.crc32(oid.encode()):08x}"
