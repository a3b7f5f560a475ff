"""Facts about templates that all their attempts share, computed once per process."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from dropflow.apps.encodings import canonical
from dropflow.apps.registry import app_class
from dropflow.data.file_names import is_blank
from dropflow.data.registry import store_for
from dropflow.data.store import Store
from dropflow.errors import DropflowError
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument, Kind, Link, Template

# The links of a graph whose data are read while they are written.


def streaming_links(graph: PhysicalGraph) -> tuple[int, ...]:
    """Return the rows of the links that the graph declares as streaming and whose two ends support it.

    The application must set `dropflow.apps.api.App.streams`, and the data class must be readable while it grows. Over
    all other links, consumers get complete data.

    Raises
    ------
    UnknownComponentError, MissingDependencyError, BadParameterError
        As `dropflow.apps.registry.app_class` and `dropflow.data.registry.store_for`.
    """
    templates = graph.templates
    declared = [
        (row, templates[link.source], templates[link.target])
        for row, link in enumerate(graph.links)
        if link.streaming and templates[link.source].kind is Kind.DATA
    ]
    return tuple(row for row, data, app in declared if app_class(app).streams and store_for(data).growing is not None)


# Which nodes of a graph may be in a chain that runs as one unit (`dropflow.graph.physical`).


def fusible_templates(graph: PhysicalGraph) -> tuple[int, ...]:
    """Return the groups of `dropflow.graph.physical.follower_column`, one for each template.

    Data are handed on if they are in memory. Applications are in a group if they run in the same place: those that
    compute in one, those that only wait in another. Services, ranks of MPI jobs, what takes part in a stream, and
    classes that are not installed here are in none.
    """
    streamed = {row for link in graph.links if link.streaming for row in (link.source, link.target)}
    return tuple(0 if row in streamed else _group(template) for row, template in enumerate(graph.templates))


def _group(template: Template) -> int:
    try:
        if template.kind is Kind.DATA:
            return int(store_for(template).hands_over)
        app = app_class(template)
    except DropflowError:
        return 0
    is_rank = any(axis.kind == "mpi" for axis in template.axes)
    return 0 if is_rank or not app.fuses else 2 if app.waits else 1


_NAMING_PORTS = frozenset({"filepath", "dirname", "dirpath"})
_PICKLES = frozenset({"pickle", "dill"})


class AppNode:
    """An application node: its fields by name, and the encodings of its ports."""

    __slots__ = ("_encodings", "arguments", "name", "template")

    def __init__(self, template: Template) -> None:
        self.template = template
        self.name = template.name
        self.arguments: Mapping[str, Argument] = MappingProxyType(
            {argument.name: argument for argument in template.arguments}
        )
        self._encodings: dict[str, str] = {}

    def encoding(self, port: str) -> str:
        """Return the encoding of a port.

        Raises
        ------
        BadParameterError
            There is no encoding of the name in the graph.
        """
        found = self._encodings.get(port)
        if found is None:
            argument = self.arguments.get(port)
            found = self._encodings[port] = canonical(argument.encoding if argument else None)
        return found

    def changes(self, port: str) -> bool:
        """Return whether the application changes what it gets at a port: one that is input and output."""
        argument = self.arguments.get(port)
        return argument is not None and argument.usage == "InputOutput" and port not in _NAMING_PORTS

    def naming(self, link: Link) -> Argument | None:
        """Return the field that gives the file name of an output: that of its port, if the port is for paths."""
        argument = self.arguments.get(link.source_port)
        if argument is None:
            return None
        about_path = self.encoding(link.source_port) == "path" or link.target_port in _NAMING_PORTS
        return argument if about_path else None


class TemplateCache:
    """The applications and stores of the data classes, by template row, made on first use."""

    def __init__(self, templates: Sequence[Template], links: Sequence[Link]) -> None:
        self.templates = templates
        self.links = links
        self._apps: dict[int, AppNode] = {}
        self._stores: dict[int, Store] = {}
        self._shared: dict[int, bool] = {}

    def app(self, row: int) -> AppNode:
        """Return an application node."""
        plan = self._apps.get(row)
        if plan is None:
            plan = self._apps[row] = AppNode(self.templates[row])
        return plan

    def may_be_shared(self, row: int) -> bool:
        """Whether drops of a data node can have several producers, here or on other nodes."""
        found = self._shared.get(row)
        if found is None:
            producers = sum(link.target == row for link in self.links)
            found = self._shared[row] = producers > 1 or bool(self.templates[row].collects)
        return found

    def store(self, row: int) -> Store:
        """Return the store of a data node.

        Raises
        ------
        UnknownComponentError, MissingDependencyError, BadParameterError
            As `dropflow.data.registry.store_for`.
        """
        store = self._stores.get(row)
        if store is None:
            store = self._stores[row] = store_for(self.templates[row])
        return store


def effective(encoding: str, store: Store) -> str:
    """Return `encoding`, or that of the data class if `encoding` is only EAGLE's default."""
    return store.encoding if store.encoding and encoding in _PICKLES else encoding


def text_or_none(value: object) -> str | None:
    """Return the file name in a field; None if it is blank."""
    return None if is_blank(value) else str(value)
