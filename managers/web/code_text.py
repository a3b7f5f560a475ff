"""Splits text into lines, and code into words to be coloured. Code is only read, never parsed or executed."""

import keyword
import re

__all__ = ["code_lines"]

_LIMIT = 200_000
_WORDS = frozenset(keyword.kwlist) | {"match", "case", "self"}
_TOKEN = re.compile(
    r"""(?P<comment>\#[^\n]*)
    |(?P<text>[rbfuRBFU]{0,2}(?:\"\"\"(?:[^\\"]|\\.|"(?!""))*+(?:\"\"\")?|'''(?:[^\\']|\\.|'(?!''))*+(?:''')?
        |"(?:[^"\\\n]|\\.)*+"?|'(?:[^'\\\n]|\\.)*+'?))
    |(?P<number>\b\d[\w.]*)
    |(?P<name>(?<=def[ ])\w+|(?<=class[ ])\w+|@[\w.]+)
    |(?P<word>[^\W\d]\w*)""",
    re.VERBOSE | re.DOTALL,
)

Line = list[tuple[str, str]]
"""Pieces of a line: a style, ``word``, ``text``, ``number``, ``name``, ``comment`` or empty, and the piece."""


def code_lines(text: str, *, is_code: bool) -> list[Line]:
    """Return the lines of a text; of code, in pieces with a style.

    Parameters
    ----------
    is_code : bool
        Whether it is Python code, or alike.
    """
    text = text.replace("\r\n", "\n").rstrip("\n")
    if not is_code or len(text) > _LIMIT:
        return [[("", line)] for line in text.split("\n")]
    lines: list[Line] = [[]]
    at = 0
    for found in _TOKEN.finditer(text):
        style = found.lastgroup or ""
        if style == "word" and found[0] not in _WORDS:
            continue
        _add(lines, "", text[at : found.start()])
        _add(lines, style, found[0])
        at = found.end()
    _add(lines, "", text[at:])
    return lines


def _add(lines: list[Line], style: str, piece: str) -> None:
    first, *rest = piece.split("\n")
    if first:
        lines[-1].append((style, first))
    lines.extend([(style, one)] if one else [] for one in rest)
