"""A graph that is written in Python, saved, and run."""

import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

from dropflow import functions
from dropflow.api.patience import PATIENCE, PatientClient
from dropflow.apps.app_interface import App
from dropflow.builder.draft import (
    DraftGraph,
    logical_graph,
    refuse_other_text,
    stored,
    type_name,
)
from dropflow.builder.functions import OPEN_GRAPHS, as_app, connect_inputs
from dropflow.builder.handles import (
    ANY,
    CarriedValue,
    Data,
    FilePattern,
    Formula,
    GroupedData,
    Loop,
    MknContent,
    by_ending,
    list_of,
    plain,
    set_parameters,
)
from dropflow.builder.results import GraphRun, SubmittedGraph, connected, submit
from dropflow.builder.wiring import COMMON, Wiring, count_of, one_or_all
from dropflow.errors import BadGraphError, DropflowError, StorageError, UsageError
from dropflow.failure import Problem
from dropflow.files import behind_link, replacing
from dropflow.graph.notebook import problems_html
from translator.formats import Family
from translator.formats.dump import dumped
from translator.logical import NodeKind, Role
from translator.pipeline import Translation

COMMAND = "dlg.apps.bash_shell_app.BashShellApp"
COLLECT = "dlg.apps.simple.ArrayGatherApp"
GROUP = "dropflow.apps.GroupByApp"
BRANCH = "dlg.apps.simple.Branch"


class Graph:
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
        self.name = name
        self.description = description
        self.drawing = DraftGraph(name)
        self.wiring = Wiring(self)

    def __enter__(self) -> Self:
        OPEN_GRAPHS.set((*OPEN_GRAPHS.get(), self))
        return self

    def __exit__(self, *error: object) -> None:
        opened = list(OPEN_GRAPHS.get())
        place = len(opened) - 1 - opened[::-1].index(self)
        OPEN_GRAPHS.set(tuple(opened[:place]))

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
        return self.wiring.call_in(self.wiring.around, as_app(function), args, kwargs)

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
            Command for bash. ``{x}`` is the input `x`: the path of data in files or from commands, the text of other
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
            raise UsageError("the command is empty", where=self.name, hint="write a command for bash")
        ports = (outputs,) if isinstance(outputs, str) else tuple(outputs)
        for port_name in (*ports, *inputs):
            if f"{{{port_name}}}" not in command:
                raise UsageError(
                    f"the command does not have {{{port_name}}}: {command:.60}",
                    where=self.name,
                    hint=f"write {{{port_name}}} where it is used",
                )
        with self.drawing.undone_on_error():
            title = name or command.split(maxsplit=1)[0].rpartition("/")[2]
            node = self.wiring.add_node(title, "BashShellApp", NodeKind.APP)
            node.set("dropclass", COMMAND)
            node.set("command", command)
            set_parameters(node, COMMON, dict(settings or {}))
            connect_inputs(self, node, inputs)
            around = self.wiring.around
            return one_or_all([self.wiring.output(node, port, ANY, inside=around, encoding="utf-8") for port in ports])

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
            node, known = self.wiring.component_node(component, name, inside=self.wiring.around)
            set_parameters(node, COMMON, dict(settings or {}))
            set_parameters(node, known, fields)
            connect_inputs(self, node, inputs or {})
            declared = [port.name for port in known.ports if port.usage in ("OutputPort", "InputOutput")]
            ports = tuple(declared) if outputs is None else outputs
            return one_or_all([self.wiring.output(node, port, ANY, inside=self.wiring.around) for port in ports])

    def value(self, value: Any, *, name: str = "Value") -> Data:
        """Return a value as data of the graph: of any type that can be pickled.

        Raises
        ------
        UsageError
            It cannot be pickled, or is a parameter.
        """
        return self.wiring.value_in(self.wiring.around, value, name)

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
        absolute = given if "{" in given else str(Path(given).absolute())
        if not encoding and by_ending(Path(given).parent.name) == "ms":
            encoding = by_ending(given) or "path"
        node = self.wiring.add_node(name or Path(given).name, "File", NodeKind.DATA)
        data = Data(self, node).save(absolute, encoding=encoding)
        data.set(check_filepath_exists=True)
        return data

    def files(self, pattern: str, *, encoding: str = "") -> Data:
        """Return the files that match an absolute pattern, one in each copy of the scatter that is open.

        Parameters
        ----------
        pattern : str
            Its matches are sorted by name.
        encoding : str
            How functions read a file; by default it follows from the ending, and is ``path`` if none is known.
        """
        node = self.wiring.add_node(Path(pattern).name, "File", NodeKind.DATA)
        node.own_encoding = encoding or by_ending(pattern) or "path"
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
            The name is not valid or is taken, there is neither a value nor a type, or the value is not in its range.
        """
        holder = self.wiring.globals_node()
        value, minimum, maximum = map(stored, (value, minimum, maximum))
        chosen = type or ("Select" if options else type_name(value) if value is not None else "")
        wrong = ("is not a name" if not name.isidentifier() else "exists already" if name in holder.fields else "") or (
            "has neither a value nor a type" if not chosen else ""
        )
        if wrong:
            raise UsageError(f"the parameter {name!r} {wrong}", where=self.name, hint='such as parameter("n", 4)')
        least, most = -math.inf if minimum is None else minimum, math.inf if maximum is None else maximum
        if isinstance(value, int | float) and not least <= value <= most:
            hint = f"its range is {least:g} to {most:g}"
            raise UsageError(
                f"the parameter {name!r} is {value}, which is not in its range", where=self.name, hint=hint
            )
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
            `copies` is not a number of copies.
        """
        with self.wiring.scattered(data, copies, name, zip_with, each=False) as piece:
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
            `copies` is not a number of copies.
        """
        if isinstance(data, FilePattern):
            with self.wiring.scattered(None, data.copies, name, zip_with, each=True):
                yield self.files(data.pattern, encoding=encoding)
            return
        with self.wiring.scattered(data, copies, name, zip_with, each=True) as element:
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
            `width` is not a number.
        """
        made = self.wiring.as_data(data)
        with self.drawing.undone_on_error():
            gathered = self.wiring.after_loops(made)
            node = self.wiring.construct(name, "Gather", num_of_inputs=count_of(width, "width", 0))
            if plain(width) != 0:
                node.set("always_list", True, "Boolean", kind="ConstructParameter")
            app, _ = self.wiring.component_node(COLLECT, "Collect", inside=node.inside, owner=node, role=Role.INPUT)
            app.set("num_of_inputs", plain(width), "Integer", kind="ApplicationArgument")
            app.set("input_error_threshold", plain(tolerate), "Float")
            self.wiring.link(gathered, app, "value")
            gathered_list = self.wiring.output(app, "list", list_of(gathered.annotation), inside=node)
        with self.wiring.open(node):
            yield gathered_list

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
        made = self.wiring.as_data(data)
        with self.drawing.undone_on_error():
            grouped = self.wiring.after_loops(made)
            around = [
                construct
                for construct in self.drawing.path(grouped.node)
                if construct.category in ("Scatter", "GroupBy") and construct not in self.wiring.inside
            ]
            if not around:
                raise UsageError(
                    f"{grouped.name!r} is not made in a scatter that ends before the group-by",
                    where=self.name,
                    hint="make the data inside a scatter, and open the group-by after it",
                )
            for key in keys:
                if key not in [construct.name for construct in around]:
                    names = ", ".join(repr(construct.name) for construct in around)
                    raise UsageError(
                        f"{grouped.name!r} is in no scatter {key!r}", where=self.name, hint=f"it is in {names}"
                    )
            node = self.wiring.construct(name, "GroupBy", num_of_inputs=1, group_key=",".join(keys))
            app, _ = self.wiring.component_node(GROUP, "Collect group", inside=node.inside, owner=node, role=Role.INPUT)
            self.wiring.link(grouped, app, "input")
        grouped_data = GroupedData(self, node, list_of(grouped.annotation))
        with self.wiring.open(node):
            yield grouped_data
        if not grouped_data.is_used:
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
            `iterations` is not a number of iterations, or a carried value has no next value.
        """
        node = self.wiring.construct(name, "Loop", num_of_iter=count_of(iterations, "iterations", 1))
        opened = Loop(self, node)
        with self.wiring.open(node):
            yield opened
        opened.close()

    @contextmanager
    def subgraph(self, name: str) -> Iterator[None]:
        """Open a subgraph: nodes that belong together in the drawing."""
        with self.wiring.open(self.wiring.construct(name, "SubGraph")):
            yield

    @contextmanager
    def exclusive(self, name: str = "Exclusive") -> Iterator[None]:
        """Open an ExclusiveForceNode: its nodes share their machine with no others."""
        with self.wiring.open(self.wiring.construct(name, "ExclusiveForceNode")):
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
        numbers = {"m": count_of(m, "m", 1), "k": count_of(k, "k", 0), "n": count_of(n, "n", 1)}
        node = self.wiring.construct(name, "MKN", **numbers)
        with self.wiring.open(node):
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
            Command for bash; ``{x}`` as in `command`.
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
            The content that the service has written to `output`.
        """
        with self.drawing.undone_on_error():
            node = self.wiring.construct(name, "Service")
            title = f"{name} command"
            app, _ = self.wiring.component_node(COMMAND, title, inside=node.inside, owner=node, role=Role.INPUT)
            app.set("command", command)
            if ready:
                app.set("ready", ready)
            for port, given in inputs.items():
                value = self.wiring.as_data(given)
                if isinstance(value, Data):
                    self.wiring.link(value, app, port)
                else:
                    app.set(port, plain(value), kind="ApplicationArgument")
            data = self.wiring.output(app, output, ANY, inside=node, encoding="utf-8") if output else None
        with self.wiring.open(node):
            yield data

    def branch(
        self, function: Callable[..., Any], data: Data | CarriedValue, /, *args: Any, **kwargs: Any
    ) -> tuple[Data, Data]:
        """Add a branch: `data` go on, unchanged, on the way that the function chooses; the other way is skipped.

        Parameters
        ----------
        function : callable
            Returns true or false for `data`, its first argument.
        data : Data
            The data that are tested and passed on.
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
        ways = self.call(made.options(outputs=("true", "false")), data, *args, **kwargs)
        node = next(link.source for link in self.drawing.links if link.target is ways[0].node)
        node.category = "Branch"
        node.set("dropclass", BRANCH)
        for port in ("true", "false"):  # as in the palette; EAGLE warns of arguments
            node.field(port, parameter_type="ComponentParameter")
        passed_on = next(link.source for link in self.drawing.links if link.target is node)
        for way in ways:
            way.annotation = getattr(data, "annotation", ANY)
            way.node.own_encoding, way.node.passed_on = "", passed_on
        yes, no = ways
        return yes, no

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
        try:
            return dumped(logical_graph(self.drawing, self.description), family)
        except UnicodeEncodeError as error:
            refuse_other_text(error.object, self.name)
            raise
        except TypeError as error:
            raise UsageError(
                f"a field has a value that no file of a graph can have: {error}", where=self.name
            ) from error

    def save(self, path: str | os.PathLike[str], *, schema: Literal["OJS", "V4"] = "OJS") -> Path:
        """Write the graph to a file, which EAGLE opens and every command of dropflow takes, and return its path.

        If it cannot be written, a file that is there stays as it is.

        Raises
        ------
        StorageError
            The file cannot be written.
        UsageError
            As `document`.
        """
        target, content = Path(path), self.document(schema)
        try:
            with replacing(behind_link(target)) as file:
                file.write(content)
        except OSError as error:
            raise StorageError(f"the graph cannot be written: {error.strerror or error}", where=str(target)) from error
        return target

    def check(self, values: Mapping[str, Any] | None = None, *, here: bool = False) -> tuple[Problem, ...]:
        """Return all problems of the graph; see `dropflow.check`."""
        return functions.check(self.document(), name=self.name, settings=values or {}, here=here)

    def translate(self, values: Mapping[str, Any] | None = None, **options: Any) -> Translation:
        """Unroll the graph; see `dropflow.translate`, which has the `options` and errors."""
        return functions.translate(self.document(), name=self.name, settings=values or {}, **options)

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
        return GraphRun(functions.run(self.document(), name=self.name, settings=values or {}, **options))

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
            return problems_html(repr(self), [str(problem) for problem in error.problems])
        except DropflowError as error:
            return problems_html(repr(self), [str(error)])

    def __repr__(self) -> str:
        return f"<Graph {self.name!r}: {len(self.drawing.nodes)} nodes, {len(self.drawing.links)} edges>"
