"""Nodes of a graph: functions, commands, components, data and parameters.

`dropflow.builder.graph.Graph` has these methods.
"""

import inspect
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dropflow.apps.api import App
from dropflow.apps.parameters import COMMON_APP, SURROUNDING
from dropflow.apps.registry import app_class
from dropflow.builder.draft import COLLECTING, TRANSPARENT, DraftGraph, DraftLink, DraftNode, type_name
from dropflow.builder.functions import AppFunction, as_app, connect, connect_inputs, pickled_text
from dropflow.builder.handles import ANY, CarriedValue, Data, Formula, by_ending, list_of, port_type, set_parameters
from dropflow.data.memory import MEMORY
from dropflow.engine.parameters import Component
from dropflow.errors import UsageError
from dropflow.graph.templates import Kind, Template
from translator.logical import NodeKind, Role

FUNCTION = "dlg.apps.pyfunc.PyFuncApp"
COMMAND = "dlg.apps.bash_shell_app.BashShellApp"
_COMMON = Component(
    name="", kind=Kind.APP, category="", dropclass="", description="", parameters=(*COMMON_APP, *SURROUNDING)
)


class GraphNodes:
    """A graph that is being written: its nodes and edges, and the constructs that are open."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.drawing = DraftGraph(name)
        self.inside: list[DraftNode] = []

    def call(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Add a call of a function, and return its output.

        An argument that is `Data` becomes an edge, a list of data several. All others become fields of the node, or
        data of their own if a field cannot hold them.

        Parameters
        ----------
        function : callable
            A function, or one that `dropflow.app` has decorated.
        *args, **kwargs
            Its arguments.

        Returns
        -------
        Data, or tuple of Data
            A tuple if the function has named several outputs.

        Raises
        ------
        UsageError
            An argument is missing, unknown or of the wrong type, or comes from a construct that cannot be read here;
            or the code of the function cannot be written into the graph.
        """
        return self._call_in(self._around, as_app(function), args, kwargs)

    def command(
        self,
        command: str,
        *,
        name: str = "",
        outputs: tuple[str, ...] | str = (),
        settings: Mapping[str, Any] | None = None,
        **inputs: Any,
    ) -> Any:
        """Add a shell command, and return its output.

        Parameters
        ----------
        command : str
            What bash runs. ``{x}`` is the input `x`: the path of data in files or from commands, the text of other
            values; or the output `x`: a path to write to.
        name : str
            Name of the node; by default the program.
        outputs : tuple of str
            Names of the outputs in the command.
        settings : mapping
            Parameters of all applications, such as ``{"timeout": 60}``.
        **inputs
            Data, parameters and values by their names in the command.

        Returns
        -------
        Data, tuple of Data, or None
            One for each of `outputs`.

        Raises
        ------
        UsageError
            The command does not name an input or output.
        """
        if not command.strip():
            raise UsageError("the command is empty", where=self.name, hint="write what bash is to run")
        ports = (outputs,) if isinstance(outputs, str) else tuple(outputs)
        for one in (*ports, *inputs):
            if f"{{{one}}}" not in command:
                raise UsageError(
                    f"the command does not have {{{one}}}: {command:.60}",
                    where=self.name,
                    hint=f"write {{{one}}} where it is used",
                )
        with self.drawing.undone_on_error():
            node = self._node(name or command.split(maxsplit=1)[0].rpartition("/")[2], "BashShellApp", NodeKind.APP)
            node.set("dropclass", COMMAND)
            node.set("command", command)
            set_parameters(node, _COMMON, dict(settings or {}))
            connect_inputs(self, node, inputs)
            return _one_or_all([self.output(node, port, ANY, inside=self._around, encoding="utf-8") for port in ports])

    def component(
        self,
        component: str | type[App],
        *,
        inputs: Mapping[str, Any] | None = None,
        outputs: tuple[str, ...] | None = None,
        name: str = "",
        settings: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> Any:
        """Add an application by its class, and return its output.

        Parameters
        ----------
        component : str or type
            A class name such as ``dlg.apps.simple.CopyApp``, or a subclass of `dropflow.App`.
        inputs : mapping
            Data by input port.
        outputs : tuple of str, optional
            Output ports; by default those that the component declares.
        name : str
            Name of the node; by default that of the component.
        settings : mapping
            Parameters of all applications.
        **fields
            Parameters of the component.

        Returns
        -------
        Data, tuple of Data, or None

        Raises
        ------
        UsageError
            There is no such parameter.
        UnknownComponentError, MissingDependencyError
            There is no such class.
        """
        with self.drawing.undone_on_error():
            node, known = self._component_node(component, name, inside=self._around)
            set_parameters(node, _COMMON, dict(settings or {}))
            set_parameters(node, known, fields)
            connect_inputs(self, node, inputs or {})
            declared = [port.name for port in known.ports if port.usage in ("OutputPort", "InputOutput")]
            ports = tuple(declared) if outputs is None else outputs
            return _one_or_all([self.output(node, port, ANY, inside=self._around) for port in ports])

    def value(self, value: Any, *, name: str = "Value") -> Data:
        """Return a value as data of the graph: of any type that can be pickled.

        Raises
        ------
        UsageError
            It cannot be pickled, or is a parameter.
        """
        return self.value_in(self._around, value, name)

    def value_in(self, inside: DraftNode | None, value: Any, name: str) -> Data:
        """Return a value as data in a construct; see `value`."""
        if isinstance(value, Formula):
            raise UsageError(
                f"the parameter {value} cannot be data of the graph",
                where=self.name,
                hint="give it to a function that returns it, and use what the call returns",
            )
        node = self.drawing.add(name, "Memory", NodeKind.DATA, inside=inside)
        node.set("dropclass", MEMORY.dropclass)
        node.set("pydata", pickled_text(value), "Object", kind="ApplicationArgument")
        return Data(self, node, annotation=ANY if value is None else type(value))

    def file(self, path: "str | os.PathLike[str] | Formula", *, encoding: str = "", name: str = "") -> Data:
        """Return a file that exists as data of the graph.

        Parameters
        ----------
        path : path
            A relative one is made absolute, unless it has a parameter.
        encoding : str
            How functions read it; by default it follows from the ending, and is ``path`` for a subtable of a
            measurement set, such as ``obs.ms/ANTENNA``.
        name : str
            Name of the node; by default that of the file.

        Raises
        ------
        UsageError
            The encoding does not follow from the path.
        """
        given = str(path)
        whole = given if "{" in given else str(Path(given).absolute())
        if not encoding and by_ending(Path(given).parent.name) == "ms":
            encoding = by_ending(given) or "path"
        node = self._node(name or Path(given).name, "File", NodeKind.DATA)
        found = Data(self, node).save(whole, encoding=encoding)
        found.set(check_filepath_exists=True)
        return found

    def files(self, pattern: str, *, encoding: str = "") -> Data:
        """Return the files that match an absolute pattern, one in each copy of the scatter that is open.

        Parameters
        ----------
        pattern : str
            Its matches are sorted by name.
        encoding : str
            How functions read a file; by default it follows from the ending, and is ``path`` if none is known.
        """
        node = self._node(Path(pattern).name, "File", NodeKind.DATA)
        node.encoding = encoding or by_ending(pattern) or "path"
        return Data(self, node).store("Files", pattern=pattern)

    def parameter(
        self,
        name: str,
        value: Any = None,
        *,
        description: str = "",
        minimum: float | None = None,
        maximum: float | None = None,
        options: tuple[str, ...] = (),
        type: str = "",  # noqa: A002 - EAGLE's name
    ) -> Formula:
        """Return a parameter of the graph, which is then a template (``docs/howto/templates.md``).

        Parameters
        ----------
        name : str
            Its name in settings and forms.
        value : Any
            Its value unless another one is given; None if one has to be given.
        description : str
            What it means, for forms.
        minimum, maximum : float, optional
            Range of a number.
        options : tuple of str
            The allowed values of a choice.
        type : str
            EAGLE's type, such as ``Integer``; by default that of `value`.

        Raises
        ------
        UsageError
            The name is no name or is taken, there is neither a value nor a type, or the value is not in its range.
        """
        holder = self._globals()
        chosen = type or ("Select" if options else type_name(value) if value is not None else "")
        wrong = ("is not a name" if not name.isidentifier() else "exists already" if name in holder.fields else "") or (
            "has neither a value nor a type" if not chosen else ""
        )
        if wrong:
            raise UsageError(f"the parameter {name!r} {wrong}", where=self.name, hint='such as parameter("n", 4)')
        if isinstance(value, int | float) and not (minimum or -math.inf) <= value <= (
            math.inf if maximum is None else maximum
        ):
            raise UsageError(f"the parameter {name!r} is {value}, which is not in its range", where=self.name)
        if options and value is not None and value not in options:
            raise UsageError(
                f"the parameter {name!r} is {value!r}, expected one of {', '.join(options)}", where=self.name
            )
        holder.field(
            name,
            value=value,
            type=chosen,
            parameter_type="ComponentParameter",
            description=description,
            options=options,
            minimum=minimum,
            maximum=maximum,
        )
        return Formula(f"{{{name}}}", chosen)

    def link(self, data: Data, node: DraftNode, port: str, *, type_: str = "Object", loop_aware: bool = False) -> None:
        """Add an edge from data to an input port.

        Raises
        ------
        UsageError
            The data are of another graph, or in a construct that cannot be read from the node.
        """
        self.refuse_unreadable(data, node)
        node.port(port, "InputPort", type_=type_)
        data.node.port("io", "InputOutput")
        aware = loop_aware or data.loop_aware
        self.drawing.links.append(DraftLink(data.node, "io", node, port, loop_aware=aware))

    def as_data(self, value: Any) -> Any:
        """Return data with what a loop carries: a function copies it in each iteration. Anything else is returned."""
        if not isinstance(value, CarriedValue):
            return value
        if value.copy is None:
            function = as_app(_same).options(name=f"{value.loop.name} carries")
            copied = self._call_in(value.loop, function, (value,), {})
            copied.annotation = value.first.annotation
            value.copy = copied
        return value.copy

    def output(
        self, node: DraftNode, port: str, annotation: Any, *, inside: DraftNode | None, encoding: str = "pickle"
    ) -> Data:
        """Add data that an application writes at a port."""
        title = node.name if port in ("output", "result") else f"{node.name} {port}"
        made = self.drawing.add(f"{title} data", "Memory", NodeKind.DATA, inside=inside)
        made.set("dropclass", MEMORY.dropclass)
        made.encoding = encoding
        made.port("io", "InputOutput")
        node.port(port, "OutputPort", type_=port_type(annotation))
        self.drawing.links.append(DraftLink(node, port, made, "io"))
        return Data(self, made, annotation=annotation)

    def annotation_at(self, data: Data, node: DraftNode) -> Any:
        """Return the annotation of data as a node gets them: a list, if it collects copies."""
        source, target = self.drawing.path(data.node), self.drawing.path(node)
        left = [one for one in source if one not in target and one.category not in TRANSPARENT]
        left = [one for one in left if not (data.loop_aware and one.category == "Loop")]
        # A gather of all copies has one list, and is not collected again.
        several = [one for one in left if one.category != "Gather" or "always_list" in one.fields]
        if left and not several:
            return data.annotation
        return list_of(data.annotation) if several or node.role is Role.OUTPUT else data.annotation

    def call_embedded(
        self,
        construct: DraftNode,
        role: Role,
        function: AppFunction[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        inside: DraftNode | None,
    ) -> Data:
        """Add a function as an application of a construct, and return its output."""
        if role in self.drawing.apps_of(construct):
            raise UsageError(
                f"{construct.name!r} has an {role} application already", where=self.name, hint="call it once"
            )
        with self.drawing.undone_on_error():
            node = self.drawing.add(
                function.title, "PyFuncApp", NodeKind.APP, inside=construct.inside, owner=construct, role=role
            )
            self._fill_function(node, function)
            connect(self, node, function, args, kwargs)
            port = _output_port(node)
            returned = function.returned
            is_list = construct.category == "MKN" and role is Role.OUTPUT
            return self.output(node, port, list_of(returned) if is_list else returned, inside=inside)

    def _call_in(
        self,
        inside: DraftNode | None,
        function: AppFunction[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """Call a function in a construct; see `call`."""
        with self.drawing.undone_on_error():
            node = self.drawing.add(function.title, "PyFuncApp", NodeKind.APP, inside=inside)
            self._fill_function(node, function)
            connect(self, node, function, args, kwargs)
            return self._outputs(node, function, inside=inside)

    @property
    def _around(self) -> DraftNode | None:
        return self.inside[-1] if self.inside else None

    def _node(self, name: str, category: str, kind: NodeKind) -> DraftNode:
        return self.drawing.add(name, category, kind, inside=self._around)

    def _fill_function(self, node: DraftNode, function: AppFunction[..., Any]) -> None:
        node.description = " ".join((inspect.getdoc(function.function) or "").split("\n\n")[0].split())
        node.set("dropclass", FUNCTION)
        node.set("func_name", function.path)
        if code := function.code:
            node.set("func_code", code, "Python")
        set_parameters(node, _COMMON, dict(function.settings))

    def _outputs(self, node: DraftNode, function: AppFunction[..., Any], *, inside: DraftNode | None) -> Any:
        if not function.outputs and not function.written:
            return self.output(node, _output_port(node), function.returned, inside=inside)
        taken = [port for port in (*function.outputs, *function.written) if port in node.fields]
        if taken:
            raise UsageError(
                f"{taken[0]!r} is an argument and an output of {node.name!r}",
                where=self.name,
                hint="rename one of them",
            )
        made = []
        for port in dict.fromkeys((*function.outputs, *function.written)):
            encoding = function.written.get(port)
            data = self.output(node, port, ANY, inside=inside, encoding=encoding or "pickle")
            made.append(data.store("File") if encoding else data)
        return _one_or_all(made)

    def _component_node(
        self,
        component: str | type[App],
        name: str,
        *,
        inside: DraftNode | None,
        owner: DraftNode | None = None,
        role: Role = Role.NONE,
    ) -> tuple[DraftNode, Component]:
        found = component if isinstance(component, type) else None
        dropclass = f"{found.__module__}.{found.__qualname__}" if found is not None else str(component)
        if found is None:
            found = app_class(Template(key="new", name=name or dropclass, kind=Kind.APP, component=dropclass))
        known = getattr(found, "component", None)
        if not (isinstance(found, type) and issubclass(found, App)) or known is None:
            raise UsageError(
                f"{dropclass} is not described as a component",
                where=self.name,
                hint="decorate the class with dropflow.component",
            )
        node = self.drawing.add(name or known.name, known.category, NodeKind.APP, inside=inside, owner=owner, role=role)
        node.description = known.description
        node.set("dropclass", dropclass if isinstance(component, str) else known.dropclass)
        return node, known

    def _globals(self) -> DraftNode:
        for node in self.drawing.nodes:
            if node.kind is NodeKind.GLOBALS:
                return node
        made = self.drawing.add("Parameters", "GlobalVariables", NodeKind.GLOBALS, inside=None)
        made.description = "The parameters of the graph."
        return made

    def refuse_unreadable(self, data: Data, node: DraftNode) -> None:
        """Raise if a node cannot read data.

        Raises
        ------
        UsageError
            They are no data of a graph, or of another graph, or in a construct, and the node is in another one that
            does not contain it.
        """
        if not isinstance(data, Data):
            raise UsageError(
                f"{data!r:.60} is not data of the graph",
                where=f"{node.name} in graph {self.name}",
                hint="give what a call of an @app function returned in this graph",
            )
        if data.graph is not self:
            raise UsageError(
                f"{data.name!r} is data of graph {data.graph.name!r}",
                where=f"{node.name} in graph {self.name}",
                hint="graphs exchange data by files",
            )
        source, target = (
            [around for around in self.drawing.path(one) if around.category not in TRANSPARENT]
            for one in (data.node, node)
        )
        shared = sum(1 for one, two in zip(source, target, strict=False) if one is two)
        out, into = source[shared:], target[shared:]
        owner = node.owner
        if owner is not None and into == [owner] and owner.category in COLLECTING:
            return
        if not out or not into or any(map(_are_paired, out, into)):
            return
        one, other = out[0].name, into[0].name
        raise UsageError(
            f"{data.name!r} is in {one!r} and {node.name!r} in {other!r}: there is no rule for their copies",
            where=f"graph {self.name}",
            hint=f"collect it in a function outside {one!r} or with graph.gather(...), or work in one construct",
        )


def _same(value: Any) -> Any:
    """Return what the loop carries."""
    return value


def _are_paired(one: DraftNode, other: DraftNode) -> bool:
    """Return whether the copies of two constructs may be joined one to one: loops, and scatters that are zipped."""
    zipped = any("zip_with" in node.fields for node in (one, other))
    return zipped or one.category == other.category == "Loop"


def _output_port(node: DraftNode) -> str:
    return "result" if "output" in node.fields else "output"


def _one_or_all(found: list[Data]) -> Any:
    return None if not found else found[0] if len(found) == 1 else tuple(found)
