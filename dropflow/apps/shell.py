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
``%i[key]``, ``%o[key]``     paths of those with that drop id, name, port, or id of the logical node
``%iDataURL0``...            the same, as URLs
===========================  =====================================================================================

Everything else stays as it is, such as ``{a,b}``, ``${VAR}`` and ``awk '{print $1}'``. An output that is written to its
path becomes the content of its drop, also for a drop in memory.

Older graphs have commands in pieces (``Arg01``, ``Arg02``..., ``Arguments`` or ``command_line_arguments``,
``input_redirection``, ``output_redirection``); the pieces are joined by blanks. A command without any placeholder whose
node has positional arguments, ``argumentPrefix`` or ``paramValueSeparator`` gets its application arguments appended.

Placeholders may be in every piece, and in the value of a field that becomes part of the command: a field with the
value ``if=%i0 of=%o0`` becomes two words, any other value one word. Words are quoted, so that nothing in a value is
executed; only the pieces themselves are code. Placeholders in contents and values are not replaced.
"""

import os
import shlex
import shutil
import signal
from collections.abc import Mapping
from typing import Any, ClassVar

from dropflow.apps.api import App, Context, InputData
from dropflow.apps.shell_placeholders import PIECE, PlaceholderFiller, appended, mentions_arguments
from dropflow.engine.component import Component, Parameter
from dropflow.engine.parameters import find, is_empty
from dropflow.errors import AppError, BadParameterError
from dropflow.graph.templates import Argument, Kind, Template

__all__ = [
    "COMMAND_PARAMETERS",
    "BashShellApp",
    "StreamingInputBashApp",
    "StreamingInputOutputBashApp",
    "StreamingOutputBashApp",
]

_LONGEST = 128 * 1024 - 1
"""Maximal bytes of one argument of a program on Linux (MAX_ARG_STRLEN)."""

_SIGNALLED = 128
"""Shells report a command that was ended by signal n with status 128 + n."""

COMMAND_PARAMETERS = (
    Parameter(
        name="command",
        parameter_type="ComponentParameter",
        description="What bash runs. {port} and {parameter} stand for data and fields and are quoted as needed; "
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
        description="What the command's standard input is read from.",
    ),
    Parameter(
        name="output_redirection",
        parameter_type="ComponentParameter",
        description="What the command's standard output is written to.",
    ),
    Parameter(
        name="argumentPrefix",
        parameter_type="ComponentParameter",
        default=None,
        description="What stands before the names of arguments that are added to a command without placeholders.",
    ),
    Parameter(
        name="paramValueSeparator",
        parameter_type="ComponentParameter",
        default=None,
        description="What stands between the name and the value of such arguments.",
    ),
)


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

    def __init__(self, template: Template) -> None:
        super().__init__(template)
        self.command = _command(template, self.parameters)
        self._mentions_arguments = mentions_arguments(self.command, template)
        if not self.command:
            raise BadParameterError(
                f"the node '{template.name}' has no command",
                hint="fill in the field 'command' of this node",
            )

    @classmethod
    def uses(cls, argument: Argument, template: Template) -> bool:
        """Whether the command mentions the argument, or it may be added to the command."""
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
        status = context.command(
            command,
            {},
            source=source if source and source.is_open else None,
            sink=(lambda block: [output.write(block) for output in context.outputs]) if is_piped else None,
        )
        if status:
            raise AppError(
                f"the command ended with {_meaning(status)}: {self.command[:200]}", hint="see the drop's log"
            )
        if self.writes_output and not is_piped:
            for output in context.outputs[1:]:
                shutil.copyfile(context.outputs[0].path, output.path)

    def filled(self, context: Context) -> str:
        """Return the command with the values of its placeholders."""
        filling = PlaceholderFiller(context)
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


def _meaning(status: int) -> str:
    """Return a description of an exit status."""
    number = -status if status < 0 else status - _SIGNALLED
    try:
        return f"signal {signal.Signals(number).name}"
    except ValueError:
        known = {126: " (not executable)", 127: " (command not found)"}
        return f"status {status}{known.get(status, '')}"
