r"""Quoting of values in shell commands, so that no value is executed.

DALiuGE pastes text into commands: a value with a blank becomes two arguments, a value with a quote breaks the command,
and a value with ``$(...)`` is executed. Quoting every value in the same way does not work either: graphs have
``"{name}"`` and ``'{name}'`` as well as ``{name}``, and a quote inside quotes ends them. Therefore this module parses
the quoting of the command as bash does, and replaces each placeholder by its value, quoted for its place:

=====================  ===========================================================================
place                  ``{x}`` with the value ``it's $5`` becomes
=====================  ===========================================================================
bare word              ``'it'"'"'s $5'``
``"..."``, here-doc    ``it's \$5``
``'...'``              ``it'\''s $5``
``$'...'``             ``it\'s $5``
```...```              as the place inside, with one more layer of backslashes
``$((...))``           refused unless it is a number or a name; also in ``${v:...}`` and ``${v[...]}``
``"${v:-...}"``        refused: bash does not accept a single quote there, nor ``&`` and ``~`` in ``"${v/.../...}"``
comment                not replaced
=====================  ===========================================================================

Text that a command passes to another interpreter (``bash -c "..."``, ``ssh``, ``awk``) is not parsed.
"""

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dropflow.errors import AppError

_HEREDOC = re.compile(r"<<(-?)[ \t]*(\\?[\w.+-]+|'[^'\n]*'|\"[^\"\n]*\")")
_VARIABLE = re.compile(r"\$(?:(DLG_\w+)|\{(DLG_\w+)\})")
_ARITHMETIC = re.compile(r"\$\{[!#]?\w+(?:\[[^]]*|(?:\[[^]]*\])?:(?![-=+?])[^}]*)\Z")
"""The begin of an expansion up to a place where bash evaluates arithmetic: a subscript, or part of a text."""
_SUBSTITUTION = re.compile(r"\$\{!?\w+(?:\[[^]]*\])?/")
_PLAIN = re.compile(r"[\w./+-]*")
_WORD_START = frozenset(" \t\n;&|(")
_LITERAL = frozenset({"single", "ansi", "heredoc_literal"})
_BARE = frozenset({"bare", "paren", "backtick", "brace", "case"})
_CASE = re.compile(r"case\s[^;\n]*?\sin(?=\s)")
_ESAC = re.compile(r"esac\b")


_FIRST_WORD = re.compile(r"\s*([A-Za-z0-9_.+-]+)(?=[\s;|&]|$)")
_REST_OF_LINE = re.compile(r"[\w \t./+,:=-]*(?:&&|;|\n)")
_OF_SHELL = re.compile(
    r"[.:]|alias|bg|bind|break|builtin|caller|case|cd|command|compgen|complete|compopt|continue|coproc|declare|dirs|"
    r"disown|do|done|echo|elif|else|enable|esac|eval|exec|exit|export|false|fc|fg|fi|for|function|getopts|hash|help|"
    r"history|if|in|jobs|kill|let|local|logout|mapfile|popd|printf|pushd|pwd|read|readarray|readonly|return|select|set|"
    r"shift|shopt|source|suspend|test|then|time|times|trap|true|type|typeset|ulimit|umask|unalias|unset|until|wait|while"
)
"""Words that bash runs without a program: its keywords and built-in commands."""
_HARMLESS = frozenset({":", "cd", "echo", "set", "true", "ulimit", "umask"})
"""Words that do not change which programs are found after them."""


def program_of(command: str) -> str:
    """Return the name of the program that a command certainly runs first; empty if it has a path, or is uncertain."""
    at = 0
    while (first := _FIRST_WORD.match(command, at)) is not None:
        if not _OF_SHELL.fullmatch(first[1]):
            return first[1]
        rest = _REST_OF_LINE.match(command, first.end())
        if first[1] not in _HARMLESS or rest is None:
            return ""
        at = rest.end()
    return ""


@dataclass(frozen=True)
class Replacement:
    """The value of a placeholder: words that are quoted one by one. Without words the placeholder is removed."""

    words: tuple[str, ...]
    variables: bool = False
    """Whether ``$DLG_NAME`` in the words is a variable: true for fields, false for data."""


@dataclass(frozen=True)
class QuotedPlaceholder:
    """Place of a placeholder: its match, the kind of quoting around it, and the number of backtick layers."""

    match: re.Match[str]
    kind: str
    layers: int = 0
    end_line: str = ""
    """The line that ends the here-document around it."""
    strips_tabs: bool = False
    """Whether bash removes tabs at the begin of the lines of that here-document."""


def substitute(command: str, pattern: re.Pattern[str], value: Callable[[re.Match[str]], Replacement | None]) -> str:
    """Return `command` with each placeholder replaced.

    Parameters
    ----------
    command : str
        Text for ``bash -c``.
    pattern : re.Pattern
        Pattern of placeholders.
    value : callable
        Returns the value for the match of a placeholder; None to leave it as it is.

    Raises
    ------
    AppError
        A value cannot be quoted for the place of its placeholder.
    """
    pieces, position = [], 0
    for placeholder in placeholders(command, pattern):
        fill = None if placeholder.kind == "comment" else value(placeholder.match)
        if fill is None:
            continue
        pieces.append(command[position : placeholder.match.start()])
        pieces.append(" ".join(quote(word, placeholder, variables=fill.variables) for word in fill.words))
        position = placeholder.match.end()
    return "".join(pieces) + command[position:]


def quote(word: str, placeholder: QuotedPlaceholder, *, variables: bool = False) -> str:
    """Return `word`, quoted for `placeholder`.

    Raises
    ------
    AppError
        It cannot be quoted: it has a null byte or the end of the here-document, or is not a number or name in
        arithmetic.
    """
    _refuse(word, placeholder)
    parts = _VARIABLE.split(word) if variables else [word]
    quoted = ""
    for start in range(0, len(parts), 3):
        literal = parts[start]
        if literal or len(parts) == 1:
            quoted += _literal(literal, placeholder.kind)
        if start + 2 < len(parts):
            quoted += _variable(parts[start + 1] or parts[start + 2], placeholder.kind)
    for _ in range(placeholder.layers):
        quoted = re.sub(r"([\\`$])", r"\\\1", quoted)
    return quoted


def _refuse(word: str, placeholder: QuotedPlaceholder) -> None:
    """Raise if a value cannot stand at a place."""
    name = placeholder.match[0]
    if "\0" in word:
        raise AppError(f"the value of {name} has a null byte, which a command cannot have")
    if placeholder.end_line and placeholder.end_line in [line.lstrip("\t") for line in word.splitlines()]:
        raise AppError(f"the value of {name} holds the line {placeholder.end_line!r} that ends the here-document")
    before = placeholder.match.string[: placeholder.match.start()]
    line = before.rpartition("\n")[2]
    if placeholder.strips_tabs and "\n\t" in "\n" + line.lstrip("\t") + word:
        raise AppError(
            f"the value of {name} has a line that begins with a tab, which bash removes in this here-document",
            hint="write << instead of <<-",
        )
    expansion = max(0, before.rfind("${"))
    is_substitution = _SUBSTITUTION.match(before, expansion)
    refused = "'}&~" if is_substitution else "'}"  # there, & is the text that was found, and ~ the home directory
    if placeholder.kind == "expansion" and set(word) & set(refused):
        raise AppError(
            f'the value of {name} is {word[:40]!r}; bash does not accept {" or ".join(refused)} inside "${{...}}"',
            hint="assign the value to a shell variable first",
        )
    is_evaluated = placeholder.kind in ("bare", "expansion") and _ARITHMETIC.match(before, expansion)
    if (is_evaluated or placeholder.kind == "arithmetic") and not _PLAIN.fullmatch(word):
        raise AppError(
            f"the value of {name} is {word[:40]!r}, which cannot be used in an arithmetic expression",
            hint="only a number or a name can",
        )


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


def placeholders(command: str, pattern: re.Pattern[str]) -> Iterator[QuotedPlaceholder]:
    """Yield every match of `pattern` in `command`, from left to right, with the quoting around it."""
    return _Scanner(command, pattern).scan()


class _Scanner:
    """Reads a command once, with a stack of open quotes and brackets."""

    def __init__(self, command: str, pattern: re.Pattern[str]) -> None:
        self.text = command
        self.pattern = pattern
        self.position = 0
        self.open = ["bare"]
        self.pending: list[tuple[str, bool, bool]] = []  # here-documents that begin on the next line
        self.document: tuple[int, str, bool] | None = None  # where the here-document ends, its last line, if tabs go

    def scan(self) -> Iterator[QuotedPlaceholder]:
        while self.position < len(self.text):
            if self.document and self.position >= self.document[0]:
                self.close_document()
                continue
            match = self.pattern.match(self.text, self.position)
            if match and match.end() > match.start() and self.text[self.position - 1 : self.position] != "$":
                yield self.placeholder(match)
                self.position = match.end()
            else:
                self.step()

    def placeholder(self, match: re.Match[str]) -> QuotedPlaceholder:
        kinds = [kind for kind in self.open if kind != "brace"]
        kind = kinds[-1]
        if kind in ("paren", "backtick", "case"):
            kind = "bare"
        elif kind == "arithparen":
            kind = "arithmetic"
        elif kind == "double" and self.open[-1] == "brace":
            kind = "expansion"
        _, end_line, tabs = self.document or (0, "", False)
        return QuotedPlaceholder(match, kind, self.open.count("backtick"), end_line, tabs)

    def step(self) -> None:
        """Move over one character or operator that is not a placeholder."""
        kind, char = self.open[-1], self.text[self.position]
        if kind == "comment":
            self.step_comment(char)
        elif kind in _LITERAL:
            self.step_literal(kind, char)
        elif char == "\\":
            self.step_backslash(kind)
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

    def step_backslash(self, kind: str) -> None:
        """Step over an escaped character. In backticks it may be a quote: bash removes a layer of backslashes first."""
        inside = "backtick" in self.open and "double" in self.open[: self.open.index("backtick")]
        if inside and self.text.startswith('\\"', self.position):
            if kind == "double":
                self.open.pop()
            elif kind in _BARE:
                self.open.append("double")
        elif inside and self.text.startswith('\\\\\\"', self.position):
            self.position += 2
        elif "backtick" in self.open and self.text.startswith("\\`", self.position):
            if self.open.count("backtick") > 1:
                while self.open.pop() != "backtick":
                    pass
            else:
                self.open.append("backtick")
        self.position += 2

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
        elif char in "#ce" and kind != "brace" and (not before or before in _WORD_START):
            self.begin_word(position)
        elif char == "<":
            self.open_document(position)
        elif char == "\n" and self.pending:
            self.begin_document()

    def begin_word(self, position: int) -> None:
        """Begin a comment or a ``case``, or end a ``case``: in one, a parenthesis after a pattern ends nothing."""
        if self.text[position] == "#":
            self.open.append("comment")
        elif _CASE.match(self.text, position):
            self.open.append("case")
        elif self.open[-1] == "case" and _ESAC.match(self.text, position):
            self.open.pop()

    def toggle_backtick(self) -> None:
        """Begin a command substitution, or end it with everything that is still open in it."""
        self.position += 1
        if "backtick" in self.open:
            del self.open[self.open.index("backtick") :]
        else:
            self.open.append("backtick")

    def open_dollar(self) -> bool:
        """Return whether an operator with a dollar begins here, and step over it."""
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
        """Find the end of the first pending here-document."""
        last, literal, tabs = self.pending.pop(0)
        end = self.position
        for line in self.text[self.position :].splitlines(keepends=True):
            if (line.lstrip("\t") if tabs else line).rstrip("\n") == last:
                break
            end += len(line)
        self.document = (end, last, tabs)
        self.open.append("heredoc_literal" if literal else "heredoc")

    def close_document(self) -> None:
        """Step over the last line of a here-document, and begin the next one if there is one."""
        if self.document is None:
            return
        while self.open.pop() not in ("heredoc", "heredoc_literal"):
            pass
        stop = self.text.find("\n", self.document[0])
        self.position = len(self.text) if stop < 0 else stop + 1
        self.document = None
        if self.pending:
            self.begin_document()
