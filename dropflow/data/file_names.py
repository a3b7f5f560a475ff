"""Paths of file drops: the rules for `filepath` and `dirname`.

===================  ===============================================================
value                file
===================  ===============================================================
empty, ``None``      ``files/<name made from the drop's id>``
``name.txt``         ``files/name.txt``
``sub/name.txt``     ``files/sub/name.txt``; directories are made
``sub/``             ``files/sub/<name made from the drop's id>``
``/abs/x``           as it is; ``/abs/`` as ``sub/``
``$VAR/x``           the value of the variable; it must be set
``a_{uid}.dat``      placeholders replaced; ``{{`` and ``}}`` stand for braces
===================  ===============================================================

Relative paths cannot leave ``files/``. The rules are those of DALiuGE except for three defects: an unknown placeholder
is an error with its name, escaped braces become braces, and names made from ids are unique.
"""

import os
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from dropflow.errors import BadParameterError
from dropflow.graph.text_ids import human_key
from dropflow.ids import drop_file_name

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")
_SEPARATORS = re.compile(r"[:/]")

PLACEHOLDERS: Mapping[str, Callable[[str, float, str], str]] = {
    "uid": lambda oid, _now, _suffix: _SEPARATORS.sub("_", oid),
    "humanKey": lambda oid, _now, _suffix: _SEPARATORS.sub("_", human_key(oid)),
    "auto": lambda oid, _now, suffix: drop_file_name(oid) + suffix,
    "datetime": lambda _oid, now, _suffix: datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d"),
    "dlg": lambda _oid, _now, _suffix: "dropflow",
}
"""Placeholders in braces, as functions of the drop's id, the time and the suffix of made names."""


def is_blank(value: object) -> bool:
    """Return whether a `filepath` or `dirname` is empty; EAGLE writes ``None`` as text."""
    return value is None or str(value).strip() in ("", "None")


def final_path(
    value: str,
    *,
    base: Path,
    oid: str,
    now: float,
    suffix: str = "",
    environment: Mapping[str, str] | None = None,
) -> str:
    """Return the absolute path of a drop.

    Parameters
    ----------
    value : str
        The parameter; see the table of this module.
    base : Path
        The session's ``files`` directory, absolute.
    oid : str
        Text id of the drop.
    now : float
        Seconds since the epoch, for ``{datetime}`` (UTC).
    suffix : str
        Added to names made from ids, such as ``.json``.
    environment : mapping of str to str, optional
        Values of variables; by default the environment of this process.

    Raises
    ------
    BadParameterError
        There is an unknown placeholder, a variable that is not set, a relative path that leaves `base`, or a character
        that paths cannot have.

    Examples
    --------
    >>> final_path("sub/{uid}.txt", base=Path("/s/files"), oid="g_1_0-3", now=0.0)
    '/s/files/sub/g_1_0-3.txt'
    """
    made = drop_file_name(oid) + suffix
    if is_blank(value):
        return f"{base}/{made}"
    text = fill_name(value, oid=oid, now=now, suffix=suffix, environment=environment)
    if text.endswith("/") or os.path.normpath(text) == ".":
        text = f"{text}/{made}"
    if os.path.isabs(text):  # noqa: PTH117 - text, and normpath has no Path twin
        return os.path.normpath(text)
    path = os.path.normpath(text)
    if path == ".." or path.startswith("../"):
        raise BadParameterError(
            f"the path '{value}' leaves the directory of the session",
            hint="use an absolute path to write outside of it",
        )
    return f"{base}/{path}"


def fill_name(
    value: str, *, oid: str, now: float, suffix: str = "", environment: Mapping[str, str] | None = None
) -> str:
    """Return the name of a content with its variables and placeholders replaced, as `final_path` does.

    Raises
    ------
    BadParameterError
        There is an unknown placeholder, a variable that is not set, or a character that names cannot have.
    """
    text = _fill(_variables(value.strip(), environment), oid, now, suffix)
    _refuse_unwritable(text)
    return text


def shared_name(value: str) -> str:
    """Return the file that all drops with the name `value` share; empty if each has its own, or it is not known yet.

    Examples
    --------
    >>> shared_name("sub/x.txt"), shared_name("sub/{uid}.txt"), shared_name("sub/")
    ('sub/x.txt', '', '')
    """
    try:
        first, second = (
            final_path(value, base=Path("/"), oid=oid, now=0.0) for oid in ("prefix_key_0-0", "prefix_key_0-1")
        )
    except BadParameterError:
        return ""
    return first.removeprefix("//") if first == second else ""


def check_name(value: str) -> None:
    """Raise what `final_path` would raise for every drop.

    Raises
    ------
    BadParameterError
        As `final_path`.
    """
    final_path(value, base=Path("/files"), oid="prefix_key_0", now=0.0)


def _refuse_unwritable(path: str) -> None:
    """Raise if a path cannot be opened, or cannot be sent to another process."""
    if "\0" in path:
        raise BadParameterError(
            f"the path {path!r} has a NUL character", hint="choose another name: file names cannot have it"
        )
    try:
        path.encode()
    except UnicodeEncodeError as error:
        bad = ascii(path[error.start])
        raise BadParameterError(
            f"the path {path!r} has the character {bad}, which cannot be written in UTF-8",
            hint="choose another name",
        ) from error


def _variables(text: str, environment: Mapping[str, str] | None) -> str:
    known = os.environ if environment is None else environment

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name in known:
            return known[name]
        if name == "DLG_ROOT":
            return str(Path.home() / "dlg")
        raise BadParameterError(
            f"the path '{text}' needs the environment variable {name}, which is not set",
            hint=f"set it before starting: export {name}=...",
            of_host=True,
        )

    return _VARIABLE.sub(value, text)


def _fill(text: str, oid: str, now: float, suffix: str) -> str:
    def value(match: re.Match[str]) -> str:
        if match[0] in ("{{", "}}"):
            return match[0][0]
        fill = PLACEHOLDERS.get(match[1])
        if fill is None:
            names = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
            raise BadParameterError(
                f"the path '{text}' has the unknown placeholder {match[0]}",
                hint=f"known are {names}; write {{{{ and }}}} for braces",
            )
        return fill(oid, now, suffix)

    return _BRACES.sub(value, text)
