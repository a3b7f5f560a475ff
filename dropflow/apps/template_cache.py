"""What all attempts of one template share, worked out once per process and not once per attempt."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from dropflow.apps.encodings import canonical
from dropflow.data.file_paths import is_blank
from dropflow.data.registry import store_for
from dropflow.data.store import Store
from dropflow.graph.templates import Argument, Link, Template

__all__ = ["AppNode", "TemplateCache", "effective", "text_or_none"]

_NAMING_PORTS = frozenset({"filepath", "dirname", "dirpath"})
_PICKLES = frozenset({"pickle", "dill"})


class AppNode:
    """An application node: its fields by name, and what its ports mean."""

    __slots__ = ("_encodings", "arguments", "name", "template")

    def __init__(self, template: Template) -> None:
        self.template = template
        self.name = template.name
        self.arguments: Mapping[str, Argument] = MappingProxyType(
            {argument.name: argument for argument in template.arguments}
        )
        self._encodings: dict[str, str] = {}

    def encoding(self, port: str) -> str:
        """Encoding of a port.

        Raises
        ------
        BadParameterError
            The graph names one that there is not.
        """
        found = self._encodings.get(port)
        if found is None:
            argument = self.arguments.get(port)
            found = self._encodings[port] = canonical(argument.encoding if argument else None)
        return found

    def naming(self, link: Link) -> Argument | None:
        """The field that names the file behind an output: the port's own, if it is about a path."""
        argument = self.arguments.get(link.source_port)
        if argument is None:
            return None
        about_path = self.encoding(link.source_port) == "path" or link.target_port in _NAMING_PORTS
        return argument if about_path else None


class TemplateCache:
    """TemplateCache of the applications and stores of the data classes, by template row, made on first use."""

    def __init__(self, templates: Sequence[Template], links: Sequence[Link]) -> None:
        self.templates = templates
        self.links = links
        self._apps: dict[int, AppNode] = {}
        self._stores: dict[int, Store] = {}
        self._shared: dict[int, bool] = {}

    def app(self, row: int) -> AppNode:
        """Plan of an application."""
        plan = self._apps.get(row)
        if plan is None:
            plan = self._apps[row] = AppNode(self.templates[row])
        return plan

    def may_be_shared(self, row: int) -> bool:
        """Whether drops of a data class may have several producers, of which other nodes may run some."""
        found = self._shared.get(row)
        if found is None:
            producers = sum(link.target == row for link in self.links)
            found = self._shared[row] = producers > 1 or bool(self.templates[row].collects)
        return found

    def store(self, row: int) -> Store:
        """Store of a data class.

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
    """`encoding`, unless it is EAGLE's default for a port and the data class knows better."""
    return store.encoding if store.encoding and encoding in _PICKLES else encoding


def text_or_none(value: object) -> str | None:
    """A file name out of a field; None when it is blank."""
    return None if is_blank(value) else str(value)
