"""Constructs of a graph: each is opened by ``with``. `dropflow.builder.graph.Graph` has these methods."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, get_args, get_origin

from dropflow.builder.annotations import ANY, list_of
from dropflow.builder.constructs import Loop, MknContent
from dropflow.builder.draft import DraftNode
from dropflow.builder.functions import OPEN_GRAPHS, as_app
from dropflow.builder.handles import Data, Formula, GroupedData, plain
from dropflow.builder.nodes import COMMAND, GraphNodes
from dropflow.errors import UsageError

__all__ = ["GraphBlocks"]

SPLIT = "dlg.apps.simple.GenericScatterApp"
COLLECT = "dlg.apps.simple.ArrayGatherApp"
GROUP = "dropflow.apps.GroupByApp"
BRANCH = "dlg.apps.simple.Branch"


class GraphBlocks(GraphNodes):
    """A graph that is being written, with its constructs."""

    @contextmanager
    def scatter(
        self, data: Data | None = None, *, copies: int | Formula, name: str = "Scatter", zip_with: str = ""
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
    def each(self, data: Data, *, copies: int | Formula, name: str = "Each", zip_with: str = "") -> Iterator[Data]:
        """Open a scatter in which each copy gets one element of a list; the list must have as many as there are copies.

        The parameters are those of `scatter`.

        Yields
        ------
        Data
            The element of each copy.

        Raises
        ------
        UsageError
            `copies` is no number of copies.
        """
        with self._scattered(data, copies, name, zip_with, each=True) as element:
            yield element

    @contextmanager
    def gather(
        self, data: Data, *, width: int | Formula = 0, name: str = "Gather", tolerate: float | Formula = 0
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
        with self.drawing.undone_on_error():
            node = self._construct(name, "Gather", num_of_inputs=_count(width, "width", 0))
            app, _ = self._component_node(COLLECT, "Collect", inside=node.inside, owner=node, role="input")
            app.set("num_of_inputs", plain(width), "Integer", kind="ApplicationArgument")
            app.set("input_error_threshold", plain(tolerate), "Float")
            self.link(data, app, "value")
            found = self.output(app, "list", list_of(data.annotation), inside=node)
        with self._open(node):
            yield found

    @contextmanager
    def group_by(self, data: Data, *, keys: tuple[str, ...] = (), name: str = "Group by") -> Iterator[GroupedData]:
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
        around = [
            one
            for one in self.drawing.path(data.node)
            if one.category in ("Scatter", "GroupBy") and one not in self.inside
        ]
        if not around:
            raise UsageError(
                f"{data.name!r} is in no scatter that is closed", where=self.name, hint="group data of a scatter"
            )
        for key in keys:
            if key not in [one.name for one in around]:
                names = ", ".join(repr(one.name) for one in around)
                raise UsageError(f"{data.name!r} is in no scatter {key!r}", where=self.name, hint=f"it is in {names}")
        with self.drawing.undone_on_error():
            node = self._construct(name, "GroupBy", num_of_inputs=1, group_key=",".join(keys))
            app, _ = self._component_node(GROUP, "Collect group", inside=node.inside, owner=node, role="input")
            self.link(data, app, "input")
        found = GroupedData(self, node, list_of(data.annotation))
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
        if "input" not in self.drawing.apps_of(node):
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
            app, _ = self._component_node(COMMAND, f"{name} command", inside=node.inside, owner=node, role="input")
            app.set("command", command)
            if ready:
                app.set("ready", ready)
            for one, value in inputs.items():
                if isinstance(value, Data):
                    self.link(value, app, one)
                else:
                    app.set(one, plain(value), kind="ApplicationArgument")
            found = self.output(app, output, ANY, inside=node, encoding="utf-8") if output else None
        with self._open(node):
            yield found

    def branch(self, function: Callable[..., Any], data: Data, /, *args: Any, **kwargs: Any) -> tuple[Data, Data]:
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
        for one in found:
            one.annotation = getattr(data, "annotation", ANY)
        yes, no = found
        return yes, no

    @contextmanager
    def _scattered(
        self, data: Data | None, copies: int | Formula, name: str, zip_with: str, *, each: bool
    ) -> Iterator[Data]:
        number = _count(copies, "copies", 0)
        fields: dict[str, Any] = {"num_of_copies": number, **({"zip_with": zip_with} if zip_with else {})}
        found: Any = None
        with self.drawing.undone_on_error():
            node = self._construct(name, "Scatter", **fields)
            if data is not None:
                app, _ = self._component_node(SPLIT, "Split", inside=node.inside, owner=node, role="input")
                app.set("num_of_copies", number, "Integer", kind="ApplicationArgument")
                app.set("each", each, kind="ApplicationArgument")
                self.link(data, app, "array_in")
                inner = get_args(data.annotation)
                annotation = inner[0] if each and get_origin(data.annotation) is list and inner else ANY
                found = self.output(app, "object_out", annotation, inside=node)
                self.drawing.rename(found.node, f"{node.name} {'element' if each else 'piece'}")
        with self._open(node):
            yield found

    def _construct(self, name: str, category: str, **fields: Any) -> DraftNode:
        node = self._node(name, category, "construct")
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
