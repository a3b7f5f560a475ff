"""Values of the placeholders in a shell command; `dropflow.apps.shell` has the table."""

import re
import shlex
from collections.abc import Iterable, Iterator
from typing import Any

from dropflow.apps.api import Context, InputData, OutputData
from dropflow.apps.function_arguments import encoding_of, is_event
from dropflow.apps.missing_inputs import describe_missing
from dropflow.apps.shell_quote import Replacement, places, substitute
from dropflow.engine.parameters import Unusable, expand, find, fold, is_empty
from dropflow.errors import AppError, BadParameterError, UsageError
from dropflow.graph.templates import Argument, Template

__all__ = ["PIECE", "PlaceholderFiller", "appended", "mentions_arguments"]

PIECE = re.compile(r"arg(\d+)")
"""Names, in lower case, of the fields that hold pieces of a command in older graphs."""

_PLACEHOLDER = re.compile(
    r"\{(?P<name>[^{}\n]+)\}|%(?P<side>[io])(?P<url>DataURL)?(?:(?P<place>\d+)|\[(?P<key>[^\]\n]+)\])"
)
_OWN = frozenset(
    fold(name)
    for name in (
        *(
            "command",
            "command_line_arguments",
            "Arguments",
            "input_redirection",
            "output_redirection",
            "argumentPrefix",
        ),
        *("paramValueSeparator", "input_parser", "output_parser", "dropclass", "base_name", "log_level"),
    )
)
_BY_PATH = frozenset({"", "pickle", "dill", "raw", "binary"})
"""Encodings with which a file appears in a command as its path."""


class PlaceholderFiller:
    """Fills in the placeholders for one attempt."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.mentioned: set[str] = set()
        """Ports of the data that placeholders have named so far."""

    def fill(self, command: str) -> str:
        """Return `command` with all placeholders filled in.

        Raises
        ------
        AppError
            The input of a placeholder failed, or its value cannot stand there.
        """
        return substitute(command, _PLACEHOLDER, self._placeholder)

    def named(self, name: str) -> Replacement | None:
        """Return the value of ``{name}``: data at a port, a field, or a drop by its id; None if there is none."""
        context = self.context
        inputs = [data for data in context.inputs if data.port == name and not is_event(context.arguments, name)]
        if inputs:
            if not any(data.ok for data in inputs):
                raise AppError(f"the command needs the input '{name}': {describe_missing(inputs)}")
            fills = tuple(word for data in inputs if data.ok for word in self._words(data))
            own = context.arguments.get(name)
            # If all inputs are empty, the value of the field is used.
            return Replacement(fills) if any(fills) or own is None else self._field(own)
        outputs = [output for output in context.outputs if output.port == name]
        if outputs:
            return Replacement(tuple(str(output.path) for output in outputs))
        if name in context.arguments:
            return self._field(context.arguments[name])
        known: list[InputData | OutputData] = [*context.inputs, *context.outputs]
        drops = [drop for drop in known if drop.oid == name]
        return Replacement(tuple(str(drop.path) for drop in drops)) if drops else None

    def _placeholder(self, match: re.Match[str]) -> Replacement | None:
        if match["name"]:
            self.mentioned.add(match["name"])
            return self.named(match["name"])
        context = self.context
        drops: list[InputData | OutputData] = [*(context.inputs if match["side"] == "i" else context.outputs)]
        if match["place"]:
            chosen = drops[int(match["place"]) : int(match["place"]) + 1]
        else:
            chosen = [drop for drop in drops if _answers_to(drop, match["key"])]
        side = "input" if match["side"] == "i" else "output"
        if not chosen and match["place"]:
            context.log(f"{match[0]} in the command is not an {side} of this drop and stays as it is", "WARNING")
            return None
        if not chosen:
            # Editors renamed the nodes of old graphs, but not inside commands: a single drop must be meant.
            if len(drops) != 1:
                names = ", ".join(drop.name or drop.oid for drop in drops) or "none"
                raise AppError(
                    f"{match[0]} in the command is not an {side} of this drop", hint=f"its {side}s are: {names}"
                )
            context.log(f"{match[0]} in the command: taken for the only {side}, {drops[0].name}", "WARNING")
            chosen = drops
        self.mentioned.update(drop.port for drop in chosen)
        return Replacement(tuple(_url(drop) if match["url"] else str(drop.path) for drop in chosen))

    def _words(self, data: InputData) -> list[str]:
        """Return an input as words: a path, a URL, or its values as text, one word each."""
        encoding = (encoding_of(self.context.arguments, data.port, "input_parser") or "").lower()
        if encoding == "path" or (encoding in _BY_PATH and _is_file(data)):
            return [str(data.path)]
        if encoding == "dataurl":
            return [data.url]
        try:
            values = data.values(encoding or None) or [None]
        except UsageError:
            values = [data.read()]
        try:
            return [_text(value) for value in values]
        except UnicodeDecodeError as problem:
            raise AppError(
                f"the input '{data.port or data.name}' is not text and cannot be used in a command",
                hint="set the encoding of the port to 'path' to get a file with the content",
            ) from problem

    def _field(self, argument: Argument) -> Replacement:
        if _is_piece(argument, self.context.arguments.values()):
            return self._piece(str(argument.value))
        try:
            value = expand(argument.value)
        except Unusable as problem:
            raise BadParameterError(f"parameter '{argument.name}' is {argument.value!r}, expected {problem}") from None
        if value is False or is_empty(value, argument.type):
            return Replacement(("",) if argument.precious else ())
        return Replacement((_text(value),), variables=True)

    def _piece(self, text: str) -> Replacement:
        """Return the words of a field that names data, such as ``if=%i0 of=%o0``.

        Data are filled in word by word, and each word is quoted as any other value: nothing in it is executed.
        """
        words: list[str] = []
        for word in _shell_words(text):
            alone = _PLACEHOLDER.fullmatch(word)
            fill = None if alone is None else self._data(alone)
            if fill is not None:
                words += fill.words
            else:
                words.append(_PLACEHOLDER.sub(self._data_text, word))
        return Replacement(tuple(words))

    def _data(self, match: re.Match[str]) -> Replacement | None:
        """Return the value of a placeholder for data; None for a placeholder of a field."""
        name, context = match["name"], self.context
        ports = {data.port for data in context.inputs} | {data.port for data in context.outputs}
        return None if name and name not in ports else self._placeholder(match)

    def _data_text(self, match: re.Match[str]) -> str:
        fill = self._data(match)
        return match[0] if fill is None else " ".join(fill.words)


def mentions_arguments(command: str, template: Template) -> bool:
    """Whether `command` has a placeholder, so that arguments are not appended to it."""
    names = {argument.name for argument in template.arguments}
    return any(place.match["side"] or place.match["name"] in names for place in places(command, _PLACEHOLDER))


def _is_piece(argument: Argument, others: Iterable[Argument]) -> bool:
    """Whether the value of a field names data with ``%i0``, ``%o[key]`` or ``{port}``."""
    if argument.is_port or not isinstance(argument.value, str):
        return False
    ports = {other.name for other in others if other.is_port}
    return any(match["side"] or match["name"] in ports for match in _PLACEHOLDER.finditer(argument.value))


def _shell_words(text: str) -> list[str]:
    """Split a value into words as a shell does. A value with an open quote is a single word."""
    try:
        return shlex.split(text)
    except ValueError:
        return [text]


def appended(template: Template, filling: PlaceholderFiller) -> Iterator[str]:
    """Yield the application arguments of an older node as words for its command: named ones, then positional ones.

    Only nodes with ``argumentPrefix``, ``paramValueSeparator`` or positional arguments have any. Arguments without a
    value are left out, unless they are precious. With the prefix ``--``, names of one letter get one dash.
    """
    prefix = find(template.arguments, "argumentPrefix")
    separator = find(template.arguments, "paramValueSeparator")
    positional: list[str] = []
    fills = {each.name: filling.named(each.name) for each in template.arguments if _is_piece(each, template.arguments)}
    for argument in template.arguments:
        if argument.is_port and argument.name in filling.mentioned:
            continue  # a placeholder in another value has used it
        own = fold(argument.name) in _OWN or PIECE.fullmatch(argument.name.lower())
        if own or argument.parameter_type != "ApplicationArgument" or argument.type.lower() == "event":
            continue
        if not argument.positional and prefix is None and separator is None:
            continue
        fill = fills[argument.name] if argument.name in fills else filling.named(argument.name)
        if fill is None or not fill.words:
            continue
        value = " ".join(shlex.quote(word) for word in fill.words)
        if argument.positional:
            positional.append(value)
        else:
            before = "--" if prefix is None else str(prefix.value or "").strip()
            between = " " if separator is None else str(separator.value or "")
            short = before == "--" and len(argument.name) == 1
            yield f"{'-' if short else before}{shlex.quote(argument.name)}{' ' if short else between}{value}"
    yield from positional


def _answers_to(drop: InputData | OutputData, key: str) -> bool:
    """Whether `key` is the id, name or port of this drop, or the id of its logical node, which is part of its id."""
    return key in (drop.oid, drop.name, drop.port) or re.search(rf"(^|_)k?{re.escape(key)}(_|$)", drop.oid) is not None


def _is_file(data: InputData) -> bool:
    return data.is_directory or not data.in_memory


def _url(drop: InputData | OutputData) -> str:
    return drop.path.as_uri() if not hasattr(drop, "url") else drop.url


def _text(value: Any) -> str:
    if value is None:
        return ""
    return bytes(value).decode() if isinstance(value, bytes | bytearray | memoryview) else str(value)
