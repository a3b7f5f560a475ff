"""A graph that is written in Python, saved, and run."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, get_args, get_origin

from dropflow.api.patience import PATIENCE, PatientClient
from dropflow.builder.draft import DraftNode, logical_graph
from dropflow.builder.functions import OPEN_GRAPHS, as_app
from dropflow.builder.handles import ANY, CarriedValue, Data, FilePattern, Formula, GroupedData, list_of, plain
from dropflow.builder.nodes import COMMAND, GraphNodes
from dropflow.builder.results import GraphRun, SubmittedGraph, connected, submit
from dropflow.errors import BadGraphError, DropflowError, StorageError, UsageError
from dropflow.failure import Problem
from dropflow.graph.notebook import problems_html
from dropflow.sessions import public
from translator.formats import Family
from translator.formats.dump import dumped
from translator.logical import NodeKind, Role
from translator.pipeline import Translation

# What ``with`` statements of a graph open, where a plain handle is not enough: loops, MKNs and
# services.


class Loop:
    """A loop that is open: its nodes run in each iteration, one after the other."""

    def __init__(self, graph: "GraphNodes", node: DraftNode) -> None:
        self._graph = graph
        self._node = node
        self._carried: list[CarriedValue] = []

    def carry(self, first: Any) -> CarriedValue:
        """Return a value that is `first` in the first iteration, and then what `again` gives.

        Raises
        ------
        UsageError
            `first` is inside the loop.
        """
        first = self._graph.as_data(first)
        if not isinstance(first, Data):
            first = self._graph.value_in(self._node.inside, first, f"{self._node.name} begins with")
        if self._node in self._graph.drawing.path(first.node):
            raise UsageError(
                f"{first.name!r} is made in the loop, so that it cannot be what the loop begins with",
                where=self._node.name,
                hint="make it before the loop",
            )
        made = CarriedValue(self._node, first)
        self._carried.append(made)
        return made

    def again(self, carried: CarriedValue, value: Data | CarriedValue) -> None:
        """Have the next iteration get `value` for `carried`.

        Raises
        ------
        UsageError
            `value` is not made in this loop, or `carried` has a next value already, or is of another loop.
        """
        if carried not in self._carried or carried.following is not None:
            why = "already has a next value" if carried in self._carried else "belongs to another loop"
            raise UsageError(f"the {carried!r} {why}", where=self._node.name, hint="call again() once for each carry()")
        made = self._graph.as_data(value)
        if not isinstance(made, Data) or self._node not in self._graph.drawing.path(made.node):
            raise UsageError(
                f"{getattr(made, 'name', made)!r} is not made in the loop",
                where=self._node.name,
                hint="make it inside",
            )
        made.node.set("group_end", value=True)
        carried.following = made

    def last(self, value: Data | CarriedValue) -> Data:
        """Return what `value` is in the last iteration, for use after the loop; also the last of a loop around it."""
        made = self._made_inside(value)
        seen = Data(made.graph, made.node, annotation=made.annotation)
        seen.loop_aware = True
        return seen

    def exited(self, value: Data | CarriedValue) -> Data:
        """Return what `value` is in the iteration that was left through a branch, for use after the loop.

        A branch writes `value` in one iteration, and skips it in all others. A copy of it is added after the loop.
        """
        made = self._made_inside(value)
        found = self._graph.component(
            "dlg.apps.simple.CopyApp",
            inputs={"input": made},
            name=f"Leave {self._node.name}",
            settings={"block_skip": True},
        )
        assert isinstance(found, Data)  # noqa: S101 - the application has one output
        found.annotation, found.node.encoding = made.annotation, made.node.encoding
        return found

    def _made_inside(self, value: Data | CarriedValue) -> Data:
        """Return what is made in the loop as data; raise for anything else."""
        made: Data = self._graph.as_data(value)
        if self._node not in self._graph.drawing.path(made.node):
            raise UsageError(f"{made.name!r} is not made in the loop", where=self._node.name, hint="use it as it is")
        return made

    def close(self) -> None:
        """Add the edges from each iteration to the next.

        Raises
        ------
        UsageError
            Nothing is carried, a carried value has no next value, or no function uses it.
        """
        if not self._carried:
            raise UsageError(
                "nothing goes from one iteration of the loop to the next",
                where=self._node.name,
                hint="use carry() and again() in the loop; for independent copies open a scatter",
            )
        for one in self._carried:
            if one.following is None or not one.readers:
                lacks = "no next value" if one.following is None else "no function that uses it"
                hint = "call again(carried, value) in the loop" if one.following is None else "give it to a function"
                raise UsageError(f"the {one!r} has {lacks}", where=self._node.name, hint=hint)
            one.close()


class MknContent:
    """An MKN that is open: M inputs are joined, K copies of its nodes work, and N outputs are written for each."""

    def __init__(self, graph: "GraphNodes", node: DraftNode) -> None:
        self._graph = graph
        self._node = node

    def enter(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Data:
        """Call a function on M inputs, and return its result, which all K copies get."""
        return self._graph.call_embedded(self._node, Role.INPUT, as_app(function), args, kwargs, inside=self._node)

    def leave(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Data:
        """Call a function on what the K copies wrote, and return its result, for use after the construct."""
        return self._graph.call_embedded(
            self._node, Role.OUTPUT, as_app(function), args, kwargs, inside=self._node.inside
        )


# Constructs of a graph: each is opened by ``with``. `Graph` has these methods.

SPLIT = "dlg.apps.simple.GenericScatterApp"
COLLECT = "dlg.apps.simple.ArrayGatherApp"
GROUP = "dropflow.apps.GroupByApp"
BRANCH = "dlg.apps.simple.Branch"


class Graph(GraphNodes):
    """A logical graph that is written in Python.

    Inside ``with Graph(...) as graph``, calls of functions that `dropflow.app` has decorated add nodes. Constructs are
    opened by ``with``, too. Nothing runs until `run` or `submit`.

    Parameters
    ----------
    name : str
        Its name.
    description : str
        What it is for; the first line is the short description in EAGLE.

    Examples
    --------
    >>> from dropflow import Graph, app
    >>> @app
    ... def greeting(name: str) -> str:
    ...     return f"Hello {name}"
    >>> with Graph("greet") as graph:
    ...     text = greeting("World")
    >>> graph.check()
    ()
    """

    def __init__(self, name: str, description: str = "") -> None:
        if not name or not isinstance(name, str) or "/" in name or not name.isprintable():
            raise UsageError(f"{name!r:.60} is not a name of a graph", hint="give a short text without '/'")
        super().__init__(name)
        self.description = description

    def __enter__(self) -> Self:
        OPEN_GRAPHS.set((*OPEN_GRAPHS.get(), self))
        return self

    def __exit__(self, *error: object) -> None:
        opened = list(OPEN_GRAPHS.get())
        place = len(opened) - 1 - opened[::-1].index(self)
        OPEN_GRAPHS.set(tuple(opened[:place]))

    @contextmanager
    def scatter(
        self,
        data: Data | CarriedValue | None = None,
        *,
        copies: int | Formula,
        name: str = "Scatter",
        zip_with: str = "",
    ) -> Iterator[Data]:
        """Open a scatter: its nodes exist in so many copies, and each gets a piece of `data`.

        Parameters
        ----------
        data : Data
            A list or an array; each copy gets an equal piece, in order. Text is split by its lines.
        copies : int or Formula
            Number of copies.
        name : str
            Name of the construct.
        zip_with : str
            Name of another scatter with as many copies: copy k of one may then use data of copy k of the other.

        Yields
        ------
        Data
            The piece of each copy.

        Raises
        ------
        UsageError
            `copies` is no number of copies.
        """
        with self._scattered(data, copies, name, zip_with, each=False) as piece:
            yield piece

    @contextmanager
    def each(
        self,
        data: Data | CarriedValue | FilePattern,
        *,
        copies: int | Formula | None = None,
        name: str = "Each",
        zip_with: str = "",
        encoding: str = "",
    ) -> Iterator[Data]:
        """Open a scatter in which each copy gets one element of a list, or one of the files of `dropflow.glob`.

        Parameters
        ----------
        data : Data or FilePattern
            A list with as many elements as there are copies, or files. Those are counted when the graph is written; the
            run fails if their number has changed by then.
        copies : int or Formula
            Number of copies; that of files is known.
        name, zip_with : str
            As for `scatter`.
        encoding : str
            How functions read a file; by default it follows from the ending.

        Yields
        ------
        Data
            The element or file of each copy.

        Raises
        ------
        UsageError
            `copies` is no number of copies.
        """
        if isinstance(data, FilePattern):
            with self._scattered(None, data.copies, name, zip_with, each=True):
                yield self.files(data.pattern, encoding=encoding)
            return
        with self._scattered(data, copies, name, zip_with, each=True) as element:
            yield element

    @contextmanager
    def gather(
        self,
        data: Data | CarriedValue,
        *,
        width: int | Formula = 0,
        name: str = "Gather",
        tolerate: float | Formula = 0,
    ) -> Iterator[Data]:
        """Open a gather: its nodes exist once for each `width` copies of `data`.

        Parameters
        ----------
        data : Data
            Data in a scatter or loop.
        width : int or Formula
            How many copies are gathered at a time; 0 for all.
        name : str
            Name of the construct.
        tolerate : float
            Percentage of the copies that may fail; those are left out of the list.

        Yields
        ------
        Data
            The list of the copies.

        Raises
        ------
        UsageError
            `width` is no number.
        """
        gathered = self.as_data(data)
        with self.drawing.undone_on_error():
            node = self._construct(name, "Gather", num_of_inputs=_count(width, "width", 0))
            if plain(width) != 0:
                node.set("always_list", True, "Boolean", kind="ConstructParameter")
            app, _ = self._component_node(COLLECT, "Collect", inside=node.inside, owner=node, role=Role.INPUT)
            app.set("num_of_inputs", plain(width), "Integer", kind="ApplicationArgument")
            app.set("input_error_threshold", plain(tolerate), "Float")
            self.link(gathered, app, "value")
            found = self.output(app, "list", list_of(gathered.annotation), inside=node)
        with self._open(node):
            yield found

    @contextmanager
    def group_by(
        self, data: Data | CarriedValue, *, keys: tuple[str, ...] = (), name: str = "Group by"
    ) -> Iterator[GroupedData]:
        """Open a group-by: its nodes exist once for each index of a scatter around `data` (a corner turn).

        Parameters
        ----------
        data : Data
            Data in nested scatters.
        keys : tuple of str
            Names of the scatters by whose index the data are grouped; by default the innermost.
        name : str
            Name of the construct.

        Yields
        ------
        GroupedData
            The data of the group, a list, for the first argument of a function.

        Raises
        ------
        UsageError
            `data` are in no scatter, a key is none of them, or no function uses the group.
        """
        grouped: Data = self.as_data(data)
        around = [
            one
            for one in self.drawing.path(grouped.node)
            if one.category in ("Scatter", "GroupBy") and one not in self.inside
        ]
        if not around:
            raise UsageError(
                f"{grouped.name!r} is not made in a scatter that ends before the group-by",
                where=self.name,
                hint="make the data inside a scatter, and open the group-by after it",
            )
        for key in keys:
            if key not in [one.name for one in around]:
                names = ", ".join(repr(one.name) for one in around)
                raise UsageError(
                    f"{grouped.name!r} is in no scatter {key!r}", where=self.name, hint=f"it is in {names}"
                )
        with self.drawing.undone_on_error():
            node = self._construct(name, "GroupBy", num_of_inputs=1, group_key=",".join(keys))
            app, _ = self._component_node(GROUP, "Collect group", inside=node.inside, owner=node, role=Role.INPUT)
            self.link(grouped, app, "input")
        found = GroupedData(self, node, list_of(grouped.annotation))
        with self._open(node):
            yield found
        if not found.is_used:
            raise UsageError(
                f"no function uses the group of {name!r}", where=self.name, hint="give it to a function inside"
            )

    @contextmanager
    def loop(self, *, iterations: int | Formula, name: str = "Loop") -> Iterator[Loop]:
        """Open a loop: its nodes run so many times, one after the other.

        Parameters
        ----------
        iterations : int or Formula
            Number of iterations.
        name : str
            Name of the construct.

        Yields
        ------
        Loop
            Has `carry` and `again` for what goes from one iteration to the next, and `last` for what is used after it.

        Raises
        ------
        UsageError
            `iterations` is no number of iterations, or a carried value has no next value.
        """
        node = self._construct(name, "Loop", num_of_iter=_count(iterations, "iterations", 1))
        found = Loop(self, node)
        with self._open(node):
            yield found
        found.close()

    @contextmanager
    def subgraph(self, name: str) -> Iterator[None]:
        """Open a subgraph: nodes that belong together in the drawing."""
        with self._open(self._construct(name, "SubGraph")):
            yield

    @contextmanager
    def exclusive(self, name: str = "Exclusive") -> Iterator[None]:
        """Open an ExclusiveForceNode: its nodes share their machine with no others."""
        with self._open(self._construct(name, "ExclusiveForceNode")):
            yield

    @contextmanager
    def mkn(
        self, *, m: int | Formula, k: int | Formula, n: int | Formula = 1, name: str = "MKN"
    ) -> Iterator[MknContent]:
        """Open an MKN: M inputs are joined, K copies of its nodes work on the result, and N outputs are written.

        Yields
        ------
        MknContent
            Has `enter` for the function that joins the inputs, and `leave` for the one that writes the outputs.

        Raises
        ------
        UsageError
            A number is none, or `enter` was not called.
        """
        numbers = {"m": _count(m, "m", 1), "k": _count(k, "k", 0), "n": _count(n, "n", 1)}
        node = self._construct(name, "MKN", **numbers)
        with self._open(node):
            yield MknContent(self, node)
        if Role.INPUT not in self.drawing.apps_of(node):
            raise UsageError(
                f"{name!r} has no input application", where=self.name, hint="call mkn.enter(function, data)"
            )

    @contextmanager
    def service(
        self, command: str, *, name: str = "Service", ready: str = "", output: str = "", **inputs: Any
    ) -> Iterator[Data | None]:
        """Open a service: a command that runs alongside the nodes inside, and is stopped after the last of them.

        Parameters
        ----------
        command : str
            What bash runs; ``{x}`` as in `command`.
        name : str
            Name of the construct.
        ready : str
            A command that succeeds once the service can be used.
        output : str
            Name in the command of a file that the service writes when it is ready, such as its address.
        **inputs
            Data and values by their names in the command.

        Yields
        ------
        Data or None
            What the service has written to `output`.
        """
        with self.drawing.undone_on_error():
            node = self._construct(name, "Service")
            app, _ = self._component_node(COMMAND, f"{name} command", inside=node.inside, owner=node, role=Role.INPUT)
            app.set("command", command)
            if ready:
                app.set("ready", ready)
            for one, given in inputs.items():
                value = self.as_data(given)
                if isinstance(value, Data):
                    self.link(value, app, one)
                else:
                    app.set(one, plain(value), kind="ApplicationArgument")
            found = self.output(app, output, ANY, inside=node, encoding="utf-8") if output else None
        with self._open(node):
            yield found

    def branch(
        self, function: Callable[..., Any], data: Data | CarriedValue, /, *args: Any, **kwargs: Any
    ) -> tuple[Data, Data]:
        """Add a branch: `data` go on, unchanged, on the way that the function chooses; the other way is skipped.

        Parameters
        ----------
        function : callable
            Returns true or false for `data`, its first argument.
        data : Data
            What is tested and passed on.
        *args, **kwargs
            Further arguments of the function.

        Returns
        -------
        tuple of Data
            `data` if the function returned true, and if it returned false.

        Raises
        ------
        UsageError
            As `call`.
        """
        made = as_app(function)
        found = self.call(made.options(outputs=("true", "false")), data, *args, **kwargs)
        node = next(link.source for link in self.drawing.links if link.target is found[0].node)
        node.category = "Branch"
        node.set("dropclass", BRANCH)
        for port in ("true", "false"):  # as in the palette; EAGLE warns of arguments
            node.field(port, parameter_type="ComponentParameter")
        for one in found:
            one.annotation = getattr(data, "annotation", ANY)
        yes, no = found
        return yes, no

    @contextmanager
    def _scattered(
        self, data: Data | CarriedValue | None, copies: int | Formula | None, name: str, zip_with: str, *, each: bool
    ) -> Iterator[Data]:
        number, whole = _count(copies, "copies", 0), self.as_data(data)
        fields: dict[str, Any] = {"num_of_copies": number, **({"zip_with": zip_with} if zip_with else {})}
        found: Any = None
        with self.drawing.undone_on_error():
            node = self._construct(name, "Scatter", **fields)
            if whole is not None:
                app, _ = self._component_node(SPLIT, "Split", inside=node.inside, owner=node, role=Role.INPUT)
                app.set("num_of_copies", number, "Integer", kind="ApplicationArgument")
                app.set("each", each, kind="ApplicationArgument")
                self.link(whole, app, "array_in")
                inner = get_args(whole.annotation)
                annotation = inner[0] if each and get_origin(whole.annotation) is list and inner else ANY
                found = self.output(app, "object_out", annotation, inside=node)
                self.drawing.rename(found.node, f"{node.name} {'element' if each else 'piece'}")
        with self._open(node):
            yield found

    def _construct(self, name: str, category: str, **fields: Any) -> DraftNode:
        node = self._node(name, category, NodeKind.CONSTRUCT)
        for field, value in fields.items():
            node.set(
                field,
                plain(value),
                "String" if field in ("group_key", "zip_with") else "Integer",
                kind="ConstructParameter",
            )
        return node

    @contextmanager
    def _open(self, node: DraftNode) -> Iterator[None]:
        token = OPEN_GRAPHS.set((*OPEN_GRAPHS.get(), self))
        self.inside.append(node)
        try:
            yield
        finally:
            self.inside.remove(node)
            OPEN_GRAPHS.reset(token)

    def document(self, schema: Literal["OJS", "V4"] = "OJS") -> bytes:
        """Return the graph as EAGLE writes it, in its schema ``OJS`` or ``V4``, with a layout.

        Raises
        ------
        UsageError
            A port reads data of different encodings, code has the placeholder of a parameter, or there is no such
            schema.
        """
        if schema not in ("OJS", "V4"):
            raise UsageError(f"EAGLE has no schema {schema!r}", hint="use OJS or V4")
        family = Family.V4 if schema == "V4" else Family.OJS_ID
        return dumped(logical_graph(self.drawing, self.description), family)

    def save(self, path: str | os.PathLike[str], *, schema: Literal["OJS", "V4"] = "OJS") -> Path:
        """Write the graph to a file, which EAGLE opens and every command of dropflow takes, and return its path.

        Raises
        ------
        StorageError
            The file cannot be written.
        UsageError
            As `document`.
        """
        target, content = Path(path), self.document(schema)
        try:
            target.write_bytes(content)
        except OSError as error:
            raise StorageError(f"the graph cannot be written: {error.strerror or error}", where=str(target)) from error
        return target

    def check(self, values: Mapping[str, Any] | None = None, *, here: bool = False) -> tuple[Problem, ...]:
        """Return all problems of the graph; see `dropflow.check`."""
        return public.check(self.document(), name=self.name, settings=values or {}, here=here)

    def translate(self, values: Mapping[str, Any] | None = None, **options: Any) -> Translation:
        """Unroll the graph; see `dropflow.translate`, which has the `options` and errors."""
        return public.translate(self.document(), name=self.name, settings=values or {}, **options)

    def run(self, values: Mapping[str, Any] | None = None, **options: Any) -> GraphRun:
        """Run the graph on this machine to its end.

        Parameters
        ----------
        values : mapping
            Values of parameters: ``{"n": 8}``, or ``{"NODE.PARAM": 8}``.
        **options
            Those of `dropflow.run`, such as ``workers=4`` or ``directory="results"``.

        Returns
        -------
        GraphRun
            Its `value` returns the value of data of this graph.

        Raises
        ------
        BadGraphError
            The graph cannot run; `problems` holds everything found.
        ConflictError, StorageError
            As `dropflow.run`.
        """
        return GraphRun(public.run(self.document(), name=self.name, settings=values or {}, **options))

    def submit(
        self,
        url: str | None = None,
        *,
        values: Mapping[str, Any] | None = None,
        session: str = "",
        token: str | None = None,
        key: str | os.PathLike[str] | None = None,
    ) -> SubmittedGraph:
        """Run the graph on a cluster, and return its session at once.

        Parameters
        ----------
        url : str, optional
            The manager; by default DROPFLOW_URL, or the one that runs on this host.
        values : mapping
            Values of parameters, as in `run`.
        session : str
            Name of the session; by default made from that of the graph.
        token, key : optional
            Credential: a token, or a file with the cluster key. By default those that commands use on this host.

        Returns
        -------
        SubmittedGraph
            Its `wait` follows the session, its `value` returns the value of data of this graph.

        Raises
        ------
        BadGraphError
            The graph cannot be translated.
        NoManagerError
            No manager is named, and none runs on this host.
        LinkError
            The manager does not answer.
        """
        translation = self.translate(values)
        manager = PatientClient(partial(connected, url=url, token=token, key=key), seconds=PATIENCE)
        try:
            return submit(manager, translation.graph, session=session)
        except BaseException:
            manager.close()
            raise

    def _repr_html_(self) -> str:
        """Return the picture of the graph, or its problems, for notebooks."""
        try:
            return self.translate().graph._repr_html_()
        except BadGraphError as error:
            return problems_html(repr(self), [str(one) for one in error.problems])
        except DropflowError as error:
            return problems_html(repr(self), [str(error)])

    def __repr__(self) -> str:
        return f"<Graph {self.name!r}: {len(self.drawing.nodes)} nodes, {len(self.drawing.links)} edges>"


def _count(value: Any, what: str, least: int) -> Any:
    """Return a number of copies as the field has it.

    Raises
    ------
    UsageError
        It is no whole number of at least `least`, and no formula.
    """
    if isinstance(value, Formula):
        if value.type not in ("Integer", "Float"):
            raise UsageError(f"{what} is {value.text}, a {value.type}", hint="use a parameter of the type Integer")
        return value.text
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{what} is {value!r:.60}, expected a whole number of at least {least}", hint="or a parameter")
    return value
