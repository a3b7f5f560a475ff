"""Facts about templates that all their attempts share, computed once per process."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from dropflow.apps.encodings import canonical
from dropflow.data.file_names import is_blank
from dropflow.data.registry import store_for
from dropflow.data.store import Store
from dropflow.graph.templates import Argument, Link, Template

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
        known = self._encodings.get(port)
        if known is None:
            argument = self.arguments.get(port)
            known = self._encodings[port] = canonical(argument.encoding if argument else None)
        return known

    def changes(self, port: str) -> bool:
        """Return whether the application changes its input at a port: the port is both input and output."""
        argument = self.arguments.get(port)
        return argument is not None and argument.usage == "InputOutput" and port not in _NAMING_PORTS

    def naming(self, link: Link) -> Argument | None:
        """Return the field with the file name of an output: the field of its port, if the port is for paths."""
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
        """Return whether drops of a data node can have several producers, here or on other nodes."""
        is_shared = self._shared.get(row)
        if is_shared is None:
            producers = sum(link.target == row for link in self.links)
            is_shared = self._shared[row] = producers > 1 or bool(self.templates[row].collects)
        return is_shared

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
    """Return `encoding`, or the encoding of the data class if `encoding` is only EAGLE's default."""
    return store.encoding if store.encoding and encoding in _PICKLES else encoding


def text_or_none(value: object) -> str | None:
    """Return the file name in a field; None if it is blank."""
    return None if is_blank(value) else str(value)
