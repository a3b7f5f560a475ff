"""How a graph that is written in Python is drawn: nodes, edges between them, and constructs that are open."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, get_args, get_origin

from dropflow.apps.app_interface import App
from dropflow.apps.parameters import COMMON_APP, ENVIRONMENT_PARAMETERS
from dropflow.apps.registry import app_class
from dropflow.builder.draft import (
    COLLECTING,
    TRANSPARENT,
    DraftLink,
    DraftNode,
    stored,
)
from dropflow.builder.functions import OPEN_GRAPHS, AppFunction, as_app, connect, pickled_text
from dropflow.builder.handles import (
    ANY,
    CarriedValue,
    Data,
    Formula,
    list_of,
    plain,
    port_type,
    set_parameters,
)
from dropflow.data.memory import MEMORY
from dropflow.errors import UsageError
from dropflow.graph.components import Component
from dropflow.graph.templates import Kind, Template
from translator.logical import NodeKind, Role

if TYPE_CHECKING:
    from dropflow.builder.graph import Graph

FUNCTION = "dlg.apps.pyfunc.PyFuncApp"
SPLIT = "dlg.apps.simple.GenericScatterApp"
COPY = "dlg.apps.simple.CopyApp"
COMMON = Component(
    name="", kind=Kind.APP, category="", dropclass="", description="", parameters=(*COMMON_APP, *ENVIRONMENT_PARAMETERS)
)


class Wiring:
    """The nodes and edges of a graph, and its open constructs; `Graph` is what authors of graphs use.

    Parameters
    ----------
    graph : Graph
        The graph that is drawn.

    Attributes
    ----------
    inside : list of DraftNode
        The open constructs, the innermost one last.
    """

    def __init__(self, graph: "Graph") -> None:
        self._graph = graph
        self.drawing = graph.drawing
        self.inside: list[DraftNode] = []

    def value_in(self, inside: DraftNode | None, value: Any, name: str) -> Data:
        """Return a value as data in a construct; see `value`."""
        if isinstance(value, Formula):
            raise UsageError(
                f"the parameter {value} cannot be data of the graph",
                where=self._graph.name,
                hint="give it to a function that returns it, and use the result of the call",
            )
        node = self.drawing.add(name, "Memory", NodeKind.DATA, inside=inside)
        node.set("dropclass", MEMORY.dropclass)
        node.set("pydata", pickled_text(value), "Object", kind="ApplicationArgument")
        return Data(self._graph, node, annotation=ANY if value is None else type(value))

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
            copied = self.call_in(value.loop, function, (value,), {})
            copied.annotation = value.first.annotation
            value.copy = copied
            self.drawing.undo.append(partial(setattr, value, "copy", None))
        return value.copy

    def copied(self, data: Data, name: str, *, inside: DraftNode | None, settings: dict[str, Any]) -> Data:
        """Add a copy of data, made by an application with these parameters of all applications."""
        app, _ = self.component_node(COPY, name, inside=inside)
        set_parameters(app, COMMON, settings)
        self.link(data, app, "input")
        copy = self.output(app, "output", data.annotation, inside=inside, encoding="")
        copy.node.passed_on = data.node
        return copy

    def after_loops(self, data: Data) -> Data:
        """Return data for a construct that collects; of a last iteration a copy, since it collects all iterations.

        Raises
        ------
        UsageError
            The data are in copies of a construct inside the loop.
        """
        if not data.loop_aware:
            return data
        around = list(self.drawing.path(data.node))
        while around and around[-1] not in self.inside and around[-1].category in ("Loop", *TRANSPARENT):
            around.pop()
        loops = [construct for construct in around if construct.category == "Loop" and construct not in self.inside]
        if loops:
            text = f"{data.name!r} is in {around[-1].name!r} inside {loops[-1].name!r}: it cannot be collected after it"
            hint = "collect it in the loop, and take the last of the results of the list"
            raise UsageError(text, where=self._graph.name, hint=hint)
        return self.copied(data, f"Last {data.name}", inside=around[-1] if around else None, settings={})

    def output(
        self, node: DraftNode, port: str, annotation: Any, *, inside: DraftNode | None, encoding: str = "pickle"
    ) -> Data:
        """Add data that an application writes at a port."""
        title = node.name if port in ("output", "result") else f"{node.name} {port}"
        made = self.drawing.add(f"{title} data", "Memory", NodeKind.DATA, inside=inside)
        made.set("dropclass", MEMORY.dropclass)
        made.own_encoding = encoding
        made.port("io", "InputOutput")
        node.port(port, "OutputPort", type_=port_type(annotation))
        self.drawing.links.append(DraftLink(node, port, made, "io"))
        return Data(self._graph, made, annotation=annotation)

    def annotation_at(self, data: Data, node: DraftNode) -> Any:
        """Return the annotation of data as a node gets them: a list, if it collects copies."""
        source, target = self.drawing.path(data.node), self.drawing.path(node)
        left = [construct for construct in source if construct not in target and construct.category not in TRANSPARENT]
        left = [construct for construct in left if not (data.loop_aware and construct.category == "Loop")]
        # A gather of all copies has one list, and is not collected again.
        several = [
            construct for construct in left if construct.category != "Gather" or "always_list" in construct.fields
        ]
        if left and not several:
            return data.annotation
        return list_of(data.annotation) if several or node.role is Role.OUTPUT else data.annotation

    def call_embedded(
        self,
        construct: DraftNode,
        role: Role,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        inside: DraftNode | None,
    ) -> Data:
        """Add a function as an application of a construct, and return its output."""
        if role in self.drawing.apps_of(construct):
            raise UsageError(
                f"{construct.name!r} has an {role} application already", where=self._graph.name, hint="call it once"
            )
        app = as_app(function)
        with self.drawing.undone_on_error():
            node = self.drawing.add(
                app.title, "PyFuncApp", NodeKind.APP, inside=construct.inside, owner=construct, role=role
            )
            self._fill_function(node, app)
            connect(self._graph, node, app, args, kwargs)
            port = _output_port(node)
            returned = app.returned
            is_list = construct.category == "MKN" and role is Role.OUTPUT
            return self.output(node, port, list_of(returned) if is_list else returned, inside=inside)

    def call_in(
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
            connect(self._graph, node, function, args, kwargs)
            return self._outputs(node, function, inside=inside)

    @property
    def around(self) -> DraftNode | None:
        """The innermost construct that is open, if any."""
        return self.inside[-1] if self.inside else None

    def add_node(self, name: str, category: str, kind: NodeKind) -> DraftNode:
        """Add a node in the innermost open construct."""
        return self.drawing.add(name, category, kind, inside=self.around)

    def _fill_function(self, node: DraftNode, function: AppFunction[..., Any]) -> None:
        node.description = " ".join((inspect.getdoc(function.function) or "").split("\n\n")[0].split())
        node.set("dropclass", FUNCTION)
        node.set("func_name", function.path)
        if code := function.code:
            node.set("func_code", code, "Python")
        set_parameters(node, COMMON, dict(function.settings))

    def _outputs(self, node: DraftNode, function: AppFunction[..., Any], *, inside: DraftNode | None) -> Any:
        if not function.outputs and not function.written:
            return self.output(node, _output_port(node), function.returned, inside=inside)
        taken = [port for port in (*function.outputs, *function.written) if port in node.fields]
        if taken:
            raise UsageError(
                f"{taken[0]!r} is an argument and an output of {node.name!r}",
                where=self._graph.name,
                hint="rename one of them",
            )
        made = []
        for port in dict.fromkeys((*function.outputs, *function.written)):
            encoding = function.written.get(port)
            data = self.output(node, port, ANY, inside=inside, encoding=encoding or "pickle")
            made.append(data.store("File") if encoding else data)
        return one_or_all(made)

    def component_node(
        self,
        component: str | type[App],
        name: str,
        *,
        inside: DraftNode | None,
        owner: DraftNode | None = None,
        role: Role = Role.NONE,
    ) -> tuple[DraftNode, Component]:
        """Add a node of a component, and return it with the description of the component.

        Raises
        ------
        UsageError
            The class is not described as a component.
        """
        app = component if isinstance(component, type) else None
        dropclass = f"{app.__module__}.{app.__qualname__}" if app is not None else str(component)
        if app is None:
            app = app_class(Template(key="new", name=name or dropclass, kind=Kind.APP, component=dropclass))
        known = getattr(app, "component", None)
        if not (isinstance(app, type) and issubclass(app, App)) or known is None:
            raise UsageError(
                f"{dropclass} is not described as a component",
                where=self._graph.name,
                hint="decorate the class with dropflow.component",
            )
        node = self.drawing.add(name or known.name, known.category, NodeKind.APP, inside=inside, owner=owner, role=role)
        node.description = known.description
        node.set("dropclass", dropclass if isinstance(component, str) else known.dropclass)
        return node, known

    def globals_node(self) -> DraftNode:
        """Return the node with the parameters of the graph; it is added when it is first needed."""
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
            They are not data of a graph, or of another graph, or in a construct, and the node is in another one that
            does not contain it.
        """
        if not isinstance(data, Data):
            raise UsageError(
                f"{data!r:.60} is not data of the graph",
                where=f"{node.name} in graph {self._graph.name}",
                hint="give a value that a call of an @app function returned in this graph",
            )
        if data.graph is not self._graph:
            raise UsageError(
                f"{data.name!r} is data of graph {data.graph.name!r}",
                where=f"{node.name} in graph {self._graph.name}",
                hint="graphs exchange data by files",
            )
        source, target = (
            [around for around in self.drawing.path(end) if around.category not in TRANSPARENT]
            for end in (data.node, node)
        )
        shared = sum(1 for ours, theirs in zip(source, target, strict=False) if ours is theirs)
        out, into = source[shared:], target[shared:]
        owner = node.owner
        if owner is not None and into == [owner] and owner.category in COLLECTING:
            return
        if not out or not into or any(map(_are_paired, out, into)):
            return
        left, other = out[0].name, into[0].name
        raise UsageError(
            f"{data.name!r} is in {left!r} and {node.name!r} in {other!r}: there is no rule for their copies",
            where=f"graph {self._graph.name}",
            hint=f"collect it in a function outside {left!r} or with graph.gather(...), or work in one construct",
        )

    @contextmanager
    def scattered(
        self, data: Data | CarriedValue | None, copies: int | Formula | None, name: str, zip_with: str, *, each: bool
    ) -> Iterator[Data]:
        """Open a scatter over data, or over a number of copies; see `Graph.scatter` and `Graph.each`."""
        number, array = count_of(copies, "copies", 0), self.as_data(data)
        fields: dict[str, Any] = {"num_of_copies": number, **({"zip_with": zip_with} if zip_with else {})}
        element: Any = None
        with self.drawing.undone_on_error():
            node = self.construct(name, "Scatter", **fields)
            if array is not None:
                app, _ = self.component_node(SPLIT, "Split", inside=node.inside, owner=node, role=Role.INPUT)
                app.set("num_of_copies", number, "Integer", kind="ApplicationArgument")
                app.set("each", each, kind="ApplicationArgument")
                self.link(array, app, "array_in")
                inner = get_args(array.annotation)
                annotation = inner[0] if each and get_origin(array.annotation) is list and inner else ANY
                element = self.output(app, "object_out", annotation, inside=node)
                self.drawing.rename(element.node, f"{node.name} {'element' if each else 'piece'}")
        with self.open(node):
            yield element

    def construct(self, name: str, category: str, **fields: Any) -> DraftNode:
        """Add a construct with these fields."""
        node = self.add_node(name, category, NodeKind.CONSTRUCT)
        for field, value in fields.items():
            node.set(
                field,
                plain(value),
                "String" if field in ("group_key", "zip_with") else "Integer",
                kind="ConstructParameter",
            )
        return node

    @contextmanager
    def open(self, node: DraftNode) -> Iterator[None]:
        """Open a construct: new nodes are drawn in it until it is closed."""
        token = OPEN_GRAPHS.set((*OPEN_GRAPHS.get(), self._graph))
        self.inside.append(node)
        try:
            yield
        finally:
            self.inside.remove(node)
            OPEN_GRAPHS.reset(token)


def _same(value: Any) -> Any:
    """Return what the loop carries."""
    return value


def _are_paired(construct: DraftNode, other: DraftNode) -> bool:
    """Return whether the copies of two constructs may be joined one to one: loops, and scatters that are zipped."""
    zipped = any("zip_with" in node.fields for node in (construct, other))
    return zipped or construct.category == other.category == "Loop"


def _output_port(node: DraftNode) -> str:
    return "result" if "output" in node.fields else "output"


def one_or_all(outputs: list[Data]) -> Any:
    """Return None, the only output, or a tuple of several."""
    return None if not outputs else outputs[0] if len(outputs) == 1 else tuple(outputs)


def count_of(value: Any, what: str, least: int) -> Any:
    """Return a number of copies as the field has it.

    Raises
    ------
    UsageError
        It is not a whole number of at least `least`, nor a formula.
    """
    if isinstance(value, Formula):
        if value.type not in ("Integer", "Float"):
            raise UsageError(f"{what} is {value.text}, a {value.type}", hint="use a parameter of the type Integer")
        return value.text
    value = stored(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{what} is {value!r:.60}, expected a whole number of at least {least}", hint="or a parameter")
    return value
