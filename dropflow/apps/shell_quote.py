r"""Putting values into shell commands so that they stay values.

DALiuGE pastes text into commands: a value with a blank becomes two arguments, one with a quote breaks the command, one
with ``$(...)`` runs. Quoting every value is no answer either, because people write ``"{name}"`` and ``'{name}'`` as
they write ``{name}``, and quotes inside quotes end them. So this reads the command as bash would, as far as quoting
goes, and replaces each placeholder by its value, quoted for the place where it stands:

=====================  ===========================================================================
place                  ``{x}`` with the value ``it's $5`` becomes
=====================  ===========================================================================
bare word              ``'it'"'"'s $5'``
``"..."``, here-doc    ``it's \$5``
``'...'``              ``it'\''s $5``
``$'...'``             ``it\'s $5``
```...```              as the place inside, with one more layer of backslashes
``$((...))``           refused: only a number or a name can be meant there
``"${v:-...}"``        refused: bash takes no single quote there
comment                left alone
=====================  ===========================================================================

What a command hands on to another interpreter (``bash -c "..."``, ``ssh``, ``awk``) is beyond its sight.
"""

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dropflow.errors import AppError

__all__ = ["QuotedPlace", "Replacement", "places", "quote", "substitute"]

_HEREDOC = re.compile(r"<<(-?)[ \t]*(\\?[\w.+-]+|'[^'\n]*'|\"[^\"\n]*\")")
_VARIABLE = re.compile(r"\$(?:(DLG_\w+)|\{(DLG_\w+)\})")
_PLAIN = re.compile(r"[\w./+-]*")
_WORD_START = frozenset(" \t\n;&|(")
_LITERAL = frozenset({"single", "ansi", "heredoc_literal"})
_BARE = frozenset({"bare", "paren", "backtick", "brace"})


@dataclass(frozen=True)
class Replacement:
    """What a placeholder stands for: words, quoted one by one; none leaves nothing behind."""

    words: tuple[str, ...]
    variables: bool = False
    """Whether ``$DLG_NAME`` in the words still means the variable: true for fields, false for data."""


@dataclass(frozen=True)
class QuotedPlace:
    """Where a placeholder stands: its match, the kind of quoting around it, and how many backtick layers."""

    match: re.Match[str]
    kind: str
    layers: int = 0
    end_line: str = ""
    """The line that ends the here-document around it."""


def substitute(command: str, pattern: re.Pattern[str], value: Callable[[re.Match[str]], Replacement | None]) -> str:
    """`command` with each placeholder replaced.

    Parameters
    ----------
    command : str
        Text for ``bash -c``.
    pattern : re.Pattern
        What a placeholder looks like.
    value : callable
        From the match of a placeholder to what it stands for, or None if it is none and stays as it is.

    Raises
    ------
    AppError
        A value cannot stand where its placeholder does.
    """
    pieces, position = [], 0
    for place in places(command, pattern):
        fill = None if place.kind == "comment" else value(place.match)
        if fill is None:
            continue
        pieces.append(command[position : place.match.start()])
        pieces.append(" ".join(quote(word, place, variables=fill.variables) for word in fill.words))
        position = place.match.end()
    return "".join(pieces) + command[position:]


def quote(word: str, place: QuotedPlace, *, variables: bool = False) -> str:
    """`word` quoted for `place`.

    Raises
    ------
    AppError
        It cannot stand there: it holds a null byte, the end of the here-document, or is not plain in arithmetic.
    """
    if "\0" in word:
        raise AppError(f"the value of {place.match[0]} holds a null byte, which no command can take")
    if place.end_line and place.end_line in word.splitlines():
        raise AppError(f"the value of {place.match[0]} holds the line {place.end_line!r} that ends the here-document")
    if place.kind == "expansion" and set(word) & {"'", "}"}:
        raise AppError(
            f'the value of {place.match[0]} is {word[:40]!r}; bash takes no quote or brace inside "${{...}}"',
            hint="assign the value to a shell variable first",
        )
    if place.kind == "arithmetic" and not _PLAIN.fullmatch(word):
        raise AppError(
            f"the value of {place.match[0]} is {word[:40]!r}, which cannot stand in an arithmetic expression",
            hint="only a number or a name can",
        )
    parts = _VARIABLE.split(word) if variables else [word]
    quoted = ""
    for start in range(0, len(parts), 3):
        literal = parts[start]
        if literal or len(parts) == 1:
            quoted += _literal(literal, place.kind)
        if start + 2 < len(parts):
            quoted += _variable(parts[start + 1] or parts[start + 2], place.kind)
    for _ in range(place.layers):
        quoted = re.sub(r"([\\`$])", r"\\\1", quoted)
    return quoted


def _literal(text: str, kind: str) -> str:
    match kind:
        case "single":
            return text.replace("'", "'\\''")
        case "double" | "expansion":
            return re.sub(r"([\\\"$`])", r"\\\1", text)
        case "heredoc":
            return re.sub(r"([\\$`])", r"\\\1", text)
        case "ansi":
            return re.sub(r"([\\'])", r"\\\1", text)
        case "arithmetic" | "heredoc_literal":
            return text
        case _:
            return shlex.quote(text)


def _variable(name: str, kind: str) -> str:
    match kind:
        case "single" | "ansi":
            closing, opening = ("'", "'") if kind == "single" else ("'", "$'")
            return f'{closing}"${{{name}}}"{opening}'
        case "bare":
            return f'"${{{name}}}"'
        case "heredoc_literal":
            return f"${name}"
        case _:
            return f"${{{name}}}"


def places(command: str, pattern: re.Pattern[str]) -> Iterator[QuotedPlace]:
    """Every match of `pattern` in `command`, left to right, with the quoting around it."""
    return _Scanner(command, pattern).scan()


class _Scanner:
    """Reads a command once, with a stack of what is open."""

    def __init__(self, command: str, pattern: re.Pattern[str]) -> None:
        self.text = command
        self.pattern = pattern
        self.position = 0
        self.open = ["bare"]
        self.pending: list[tuple[str, bool, bool]] = []  # here-documents that begin on the next line
        self.document: tuple[int, str] | None = None  # where the current here-document ends, and its last line

    def scan(self) -> Iterator[QuotedPlace]:
        while self.position < len(self.text):
            if self.document and self.position >= self.document[0]:
                self.close_document()
                continue
            match = self.pattern.match(self.text, self.position)
            if match and match.end() > match.start() and self.text[self.position - 1 : self.position] != "$":
                yield self.place(match)
                self.position = match.end()
            else:
                self.step()

    def place(self, match: re.Match[str]) -> QuotedPlace:
        kinds = [kind for kind in self.open if kind != "brace"]
        kind = kinds[-1]
        if kind in ("paren", "backtick"):
            kind = "bare"
        elif kind == "arithparen":
            kind = "arithmetic"
        elif kind == "double" and self.open[-1] == "brace":
            kind = "expansion"
        return QuotedPlace(match, kind, self.open.count("backtick"), self.document[1] if self.document else "")

    def step(self) -> None:
        """Move over one character or sign that is no placeholder."""
        kind, char = self.open[-1], self.text[self.position]
        if kind == "comment":
            self.step_comment(char)
        elif kind in _LITERAL:
            self.step_literal(kind, char)
        elif char == "\\":
            self.position += 2
        elif char == "`":
            self.toggle_backtick()
        elif char == "$" and self.open_dollar():
            pass
        elif kind in ("arithmetic", "arithparen"):
            self.step_arithmetic(char)
        elif kind in _BARE:
            self.step_bare(char)
        else:
            self.position += 1
            if kind == "double" and char == '"':
                self.open.pop()

    def step_literal(self, kind: str, char: str) -> None:
        self.position += 2 if kind == "ansi" and char == "\\" else 1
        if kind != "heredoc_literal" and char == "'":
            self.open.pop()

    def step_comment(self, char: str) -> None:
        if char == "\n":
            self.open.pop()
        else:
            self.position += 1

    def step_arithmetic(self, char: str) -> None:
        if char == "(":
            self.open.append("arithparen")
        elif char == ")" and self.open.pop() == "arithmetic" and self.text.startswith("))", self.position):
            self.position += 1
        self.position += 1

    def step_bare(self, char: str) -> None:
        text, position, kind = self.text, self.position, self.open[-1]
        before = text[position - 1 : position]
        self.position += 1
        if char == "'" and not (kind == "brace" and "double" in self.open[-2:]):
            self.open.append("single")
        elif char == '"':
            self.open.append("double")
        elif char == "}" and kind == "brace":
            self.open.pop()
        elif char == "(" and text.startswith("((", position) and (not before or before in _WORD_START):
            self.position += 1
            self.open.append("arithmetic")
        elif char == "(":
            self.open.append("paren")
        elif char == ")" and kind == "paren":
            self.open.pop()
        elif char == "#" and kind != "brace" and (not before or before in _WORD_START):
            self.open.append("comment")
        elif char == "<":
            self.open_document(position)
        elif char == "\n" and self.pending:
            self.begin_document()

    def toggle_backtick(self) -> None:
        """Begin a command substitution, or end it with all that is still open in it."""
        self.position += 1
        if "backtick" in self.open:
            while self.open.pop() != "backtick":
                pass
        else:
            self.open.append("backtick")

    def open_dollar(self) -> bool:
        """Whether a sign begins here with a dollar; it is then stepped over."""
        for sign, kind in (("$((", "arithmetic"), ("$(", "paren"), ("${", "brace")):
            if self.text.startswith(sign, self.position):
                self.position += len(sign)
                self.open.append(kind)
                return True
        if self.open[-1] in _BARE and self.text.startswith("$'", self.position):
            self.position += 2
            self.open.append("ansi")
            return True
        return False

    def open_document(self, position: int) -> None:
        if self.text.startswith("<<<", position):
            self.position = position + 3
            return
        match = _HEREDOC.match(self.text, position)
        if match:
            delimiter = match[2]
            self.pending.append((delimiter.strip("'\"\\"), delimiter[0] in "'\"\\", bool(match[1])))
            self.position = match.end()

    def begin_document(self) -> None:
        """Find where the first of the pending here-documents ends."""
        last, literal, tabs = self.pending.pop(0)
        end = self.position
        for line in self.text[self.position :].splitlines(keepends=True):
            if (line.lstrip("\t") if tabs else line).rstrip("\n") == last:
                break
            end += len(line)
        self.document = (end, last)
        self.open.append("heredoc_literal" if literal else "heredoc")

    def close_document(self) -> None:
        """Step over the last line of a here-document, and into the next one if there is one."""
        if self.document is None:
            return
        while self.open.pop() not in ("heredoc", "heredoc_literal"):
            pass
        stop = self.text.find("\n", self.document[0])
        self.position = len(self.text) if stop < 0 else stop + 1
        self.document = None
        if self.pending:
            self.begin_document()
