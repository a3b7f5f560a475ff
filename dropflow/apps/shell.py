"""Shell commands as applications.

Placeholders in the command are replaced by their values, quoted for their place (`dropflow.apps.shell_quote`):

===========================  =====================================================================================
placeholder                  value
===========================  =====================================================================================
``{port}``                   input port: the path of a file or directory, the decoded content of data in memory;
                             several inputs at one port follow each other. Output port: a path to write to
``{parameter}``              the field of that name; blank and False give no word, unless the field is precious
``{<drop id>}``              path of the input or output with that id
``%i0``, ``%o0``             path of the first input, of the first output...
``%i[key]``, ``%o[key]``     paths of inputs and outputs by drop id, name, port, or id of the logical node
``%iDataURL0``...            the same, as URLs
===========================  =====================================================================================

Any other text stays as it is, such as ``{a,b}``, ``${VAR}`` and ``awk '{print $1}'``. A file that is written to the
path of an output becomes the content of its drop, also for a drop in memory. If nothing is written there, the content
is empty, with a warning in the log.

Older graphs have commands in pieces (``Arg01``, ``Arg02``..., ``Arguments`` or ``command_line_arguments``,
``input_redirection``, ``output_redirection``); the pieces are joined by blanks. A command without any placeholder whose
node has positional arguments, ``argumentPrefix`` or ``paramValueSeparator`` gets its application arguments appended.

Placeholders may be in every piece, and in the value of a field that becomes part of the command: a field with the
value ``if=%i0 of=%o0`` becomes two words, any other value one word. Words are quoted, so that nothing in a value is
executed; only the pieces themselves are code. Placeholders in contents and values are not replaced.
"""

import os
import re
import shlex
import shutil
import signal
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from dropflow.apps.app_interface import App, Context, InputData, OutputData
from dropflow.apps.parameters import describe_missing, encoding_of, is_event
from dropflow.apps.runtime_environment import MODULES, VARIABLES, VIRTUAL, RuntimeEnvironment
from dropflow.apps.shell_quote import Replacement, placeholders, program_of, substitute
from dropflow.data.storage_errors import failed_program_hint
from dropflow.errors import AppError, BadParameterError, OutOfMemoryError, UsageError
from dropflow.formatting import few
from dropflow.graph.components import Component, Parameter, Unusable, expand, find, fold, is_empty
from dropflow.graph.templates import Argument, Kind, Template
from dropflow.host.memory import count_kills

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
"""Encodings for which the placeholder of a file is replaced by its path."""
_LONGEST = 128 * 1024 - 1
"""Maximal bytes of one argument of a program on Linux (MAX_ARG_STRLEN)."""
_SIGNALLED_STATUS = 128
"""Exit status of signal 0: shells report a command that signal n has ended as this plus n."""
_KILLED = (-signal.SIGKILL, _SIGNALLED_STATUS + signal.SIGKILL)
"""Shells report a command that was ended by signal n with status 128 + n."""
COMMAND_PARAMETERS = (
    Parameter(
        name="command",
        parameter_type="ComponentParameter",
        description="Command for bash. {port} and {parameter} stand for data and fields and are quoted as needed; "
        "write output to {port} of an output port.",
    ),
    Parameter(
        name="command_line_arguments",
        parameter_type="ComponentParameter",
        aliases=("Arguments",),
        description="Text that is added to the command.",
    ),
    Parameter(
        name="input_redirection",
        parameter_type="ComponentParameter",
        description="Source of the command's standard input.",
    ),
    Parameter(
        name="output_redirection",
        parameter_type="ComponentParameter",
        description="Target of the command's standard output.",
    ),
    Parameter(
        name="argumentPrefix",
        parameter_type="ComponentParameter",
        default=None,
        description="Text before the names of arguments that are added to a command without placeholders.",
    ),
    Parameter(
        name="paramValueSeparator",
        parameter_type="ComponentParameter",
        default=None,
        description="Text between the name and the value of such arguments.",
    ),
)

# Values of the placeholders in a shell command.


class PlaceholderFiller:
    """Fills in the placeholders for one attempt."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.mentioned: set[str] = set()
        """Ports of the data that placeholders have named so far."""
        self._command = ""

    def fill(self, command: str) -> str:
        """Return `command` with all placeholders filled in.

        Raises
        ------
        AppError
            The input of a placeholder failed, or its value cannot stand there.
        """
        self._command = command
        return substitute(command, _PLACEHOLDER, self._placeholder)

    def path_of(self, drop: InputData | OutputData) -> Path:
        """Return the path of an input or output, as the command sees it."""
        return drop.path

    def filled_text(self, text: str) -> str:
        """Return `text`, which no shell reads, with data and fields filled in."""
        return _PLACEHOLDER.sub(self._value_text, text)

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
            return Replacement(tuple(str(self.path_of(output)) for output in outputs))
        if name in context.arguments:
            self._refuse_empty_port(context.arguments[name])
            return self._field(context.arguments[name])
        known: list[InputData | OutputData] = [*context.inputs, *context.outputs]
        drops = [drop for drop in known if drop.oid == name]
        return Replacement(tuple(str(self.path_of(drop)) for drop in drops)) if drops else None

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
        return Replacement(tuple(self._url(drop) if match["url"] else str(self.path_of(drop)) for drop in chosen))

    def _refuse_empty_port(self, argument: Argument) -> None:
        """Raise if nothing comes in at a port that the command names, and inputs that it does not name came elsewhere.

        Their edges end at no port, or at one of another name, such as one of a gather: the command would not read them.
        """
        if argument.usage != "InputPort" or not is_empty(argument.value, argument.type):
            return
        placeholder_matches = list(_PLACEHOLDER.finditer(self._command))
        if any(match["side"] == "i" for match in placeholder_matches):
            return  # it names inputs by their places or ids, such as %i0
        ports = {name for name, parameter in self.context.arguments.items() if parameter.usage.startswith("Input")}
        known = ports.union(match["name"] for match in placeholder_matches if match["name"])
        strays = [data for data in self.context.inputs if data.port not in known]
        if strays:
            came = dict.fromkeys(
                f"{data.name or data.oid} at {repr(data.port) if data.port else 'no port'}" for data in strays
            )
            raise AppError(
                f"no input comes in at the port '{argument.name}' that the command names",
                hint=f"end the edge at this port; inputs that the command does not name: {few(list(came))}",
            )

    def _words(self, data: InputData) -> list[str]:
        """Return an input as words: a path, a URL, or its values as text, one word each."""
        encoding = (encoding_of(self.context.arguments, data.port, "input_parser") or "").lower()
        if encoding == "path" or (encoding in _BY_PATH and _is_file(data)):
            return [str(self.path_of(data))]
        if encoding == "dataurl":
            return [self._url(data)]
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

    def _value_text(self, match: re.Match[str]) -> str:
        fill = self._placeholder(match)
        return match[0] if fill is None else " ".join(fill.words)

    def _url(self, drop: InputData | OutputData) -> str:
        path = self.path_of(drop)
        return path.as_uri() if not hasattr(drop, "url") else drop.url


def mentions_arguments(command: str, template: Template) -> bool:
    """Return whether `command` has a placeholder, so that arguments are not appended to it."""
    names = {argument.name for argument in template.arguments}
    return any(
        placeholder.match["side"] or placeholder.match["name"] in names
        for placeholder in placeholders(command, _PLACEHOLDER)
    )


def _is_piece(argument: Argument, others: Iterable[Argument]) -> bool:
    """Return whether the value of a field names data with ``%i0``, ``%o[key]`` or ``{port}``."""
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
    """Return whether `key` is the id, name or port of this drop, or the id of its logical node, a part of its id."""
    return key in (drop.oid, drop.name, drop.port) or re.search(rf"(^|_)k?{re.escape(key)}(_|$)", drop.oid) is not None


def _is_file(data: InputData) -> bool:
    return data.is_directory or not data.in_memory


def _text(value: Any) -> str:
    if value is None:
        return ""
    return bytes(value).decode() if isinstance(value, bytes | bytearray | memoryview) else str(value)


def _refuse_long(command: str) -> None:
    size = len(os.fsencode(command))
    if size > _LONGEST:
        raise AppError(
            f"the command has {size} bytes with its values filled in, the limit is {_LONGEST}",
            hint="give large data by path: set the encoding of the port to 'path'",
        )


def _component(name: str, description: str) -> Component:
    return Component(
        name=name,
        kind=Kind.APP,
        category="BashShellApp",
        dropclass=f"dlg.apps.bash_shell_app.{name}",
        description=description,
        parameters=COMMAND_PARAMETERS,
    )


class BashShellApp(App):
    """Runs a command with bash."""

    component = _component(
        "BashShellApp",
        "Runs a bash command in the session's directory. Its output goes to the drop's log; an exit status other than "
        "0 fails.",
    )
    reads_input: ClassVar[bool] = False
    """Whether standard input comes from the first input."""
    writes_output: ClassVar[bool] = False
    """Whether standard output goes to the outputs."""
    needs_command: ClassVar[bool] = True
    """Whether a node without a command is refused."""
    environment_fields: ClassVar[tuple[str, ...]] = (VARIABLES, MODULES, VIRTUAL)

    def __init__(self, template: Template) -> None:
        super().__init__(template)
        self.environment = RuntimeEnvironment.of(template)
        self.command = _command(template, self.parameters)
        self._mentions_arguments = mentions_arguments(self.command, template)
        if not self.command and self.needs_command:
            raise BadParameterError(
                f"the node '{template.name}' has no command",
                hint="fill in the field 'command' of this node",
            )

    def needs(self) -> tuple[str, ...]:
        """Return the need for the program that certainly runs first."""
        program = program_of(self.command) if not self.environment.prelude else ""  # the prelude may change PATH
        return (*([f"program:{program}"] if program else ()), *self.environment.needs)

    @classmethod
    def uses(cls, argument: Argument, template: Template) -> bool:
        """Return whether the command mentions the argument, or it may be added to the command."""
        fields = template.arguments
        if any(isinstance(field.value, str) and f"{{{argument.name}}}" in field.value for field in fields):
            return True
        return argument.positional or any(find(fields, name) for name in ("argumentPrefix", "paramValueSeparator"))

    def run(self, context: Context) -> None:
        """Fill in the placeholders and run the command.

        Raises
        ------
        AppError
            The command ended with a status other than 0, or a placeholder has no value.
        """
        command = self.filled(context)
        source = next((data for data in context.inputs if data.ok), None) if self.reads_input else None
        is_piped = self.writes_output and any(output.streams for output in context.outputs)
        command = self._redirected(context, command, None if source and source.is_open else source, is_piped=is_piped)
        _refuse_long(command)
        context.log(f"$ {command}")
        values = self.environment.values()
        kills = count_kills()
        status = context.command(
            self.environment.prelude + command,
            values,
            source=source if source and source.is_open else None,
            sink=(lambda block: [output.write(block) for output in context.outputs]) if is_piped else None,
            hidden=tuple(self.environment.secrets(values).values()),
        )
        if status in _KILLED and count_kills() > kills:
            raise OutOfMemoryError(
                f"the command was ended by the kernel's OOM killer: {self.command[:200]}",
                hint="set the field 'memory' of the node to what it needs, and see --retry-memory",
            )
        if status:
            raise AppError(
                f"the command ended with {status_text(status)}: {self.command[:200]}",
                hint=failed_program_hint(context.directory),
            )
        if self.writes_output and not is_piped:
            for output in context.outputs[1:]:
                shutil.copyfile(context.outputs[0].path, output.path)

    def filled(self, context: Context, filling: PlaceholderFiller | None = None) -> str:
        """Return the command with the values of its placeholders."""
        filling = filling or PlaceholderFiller(context)
        command = filling.fill(self.command)
        return command if self._mentions_arguments else " ".join((command, *appended(self.template, filling)))

    def _redirected(self, context: Context, command: str, data: InputData | None, *, is_piped: bool) -> str:
        """Return the command with files as its standard input and output."""
        output = context.outputs[0] if self.writes_output and context.outputs and not is_piped else None
        if data is None and output is None:
            return command
        source = f" < {shlex.quote(str(data.path))}" if data else ""
        target = f" > {shlex.quote(str(output.path))}" if output else ""
        return f"{{ {command}\n}}{source}{target}"


class StreamingInputBashApp(BashShellApp):
    """Runs a command that reads its first input on standard input."""

    component = _component(
        "StreamingInputBashApp",
        "As BashShellApp, with the first input on standard input: over a streaming link, while it is being written.",
    )
    reads_input = True
    streams = True


class StreamingOutputBashApp(BashShellApp):
    """Runs a command whose standard output goes to the outputs."""

    component = _component(
        "StreamingOutputBashApp",
        "As BashShellApp, with standard output going to the outputs, whose consumers may read it as it comes.",
    )
    writes_output = True


class StreamingInputOutputBashApp(BashShellApp):
    """Runs a command as a filter."""

    component = _component(
        "StreamingInputOutputBashApp",
        "As BashShellApp, with the first input on standard input and standard output going to the outputs, both as "
        "they come where links are streaming.",
    )
    reads_input = True
    streams = True
    writes_output = True


def _command(template: Template, parameters: Mapping[str, Any]) -> str:
    """Return the command of a node, with the pieces that older graphs have in separate fields."""
    pieces: dict[int, str] = {}
    for argument in template.arguments:
        match = PIECE.fullmatch(argument.name.lower())
        if match and not argument.is_port and not is_empty(argument.value):
            pieces[int(match[1])] = str(argument.value)
    command, more = parameters["command"], parameters["command_line_arguments"]
    field = find(template.arguments, "command_line_arguments", ("Arguments",))
    where = "" if field is None else f"{{{field.name}}}"
    texts = [command, *(pieces[place] for place in sorted(pieces))]
    if where and where in command:  # the command has a placeholder for them
        texts[0] = command.replace(where, more)
    else:
        texts.append(more)
    for name, sign in (("input_redirection", "<"), ("output_redirection", ">")):
        text = parameters[name].strip()
        texts.append(f"{sign} {text}" if text and text[0] not in "<>" else text)
    return " ".join(text.strip() for text in texts if text.strip())


def status_text(status: int) -> str:
    """Return a description of an exit status."""
    number = -status if status < 0 else status - _SIGNALLED_STATUS
    try:
        return f"signal {signal.Signals(number).name}"
    except ValueError:
        known = {126: " (not executable)", 127: " (command not found)"}
        return f"status {status}{known.get(status, '')}"
