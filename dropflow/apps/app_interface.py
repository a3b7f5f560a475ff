"""The interface for authors of applications: `App`, and the `Context` of one attempt with its inputs and outputs."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Protocol, TypeVar

from dropflow.graph.components import Component, Parameter, Port, read
from dropflow.graph.templates import Argument, Kind, Template
from dropflow.states import DropState


class InputData(Protocol):
    """One input of an attempt. Reading one whose state is not COMPLETED raises `dropflow.errors.UsageError`."""

    port: str
    """Name of the application's port; empty when the graph names none."""
    oid: str
    name: str
    """Name of the data drop."""
    state: DropState

    @property
    def ok(self) -> bool:
        """Whether there is content to read."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether the content is still being written. Then `open` returns a growing stream; everything else waits."""
        ...

    @property
    def size(self) -> int:
        """Bytes of content."""
        ...

    @property
    def is_directory(self) -> bool:
        """Whether the content is a directory."""
        ...

    @property
    def is_text(self) -> bool:
        """Whether the content was declared as text (a String memory drop) or written as text."""
        ...

    @property
    def is_collected(self) -> bool:
        """Whether the graph collects at this port, as a gather does. Then the value is a list, even of one item."""
        ...

    @property
    def in_memory(self) -> bool:
        """Whether the content is that of a memory drop: written by this session, and in no file."""
        ...

    @property
    def is_private(self) -> bool:
        """Whether the application may change what is at `path`, because its port is for both directions."""
        ...

    def read(self) -> bytes:
        """Return the whole content."""
        ...

    def open(self) -> BinaryIO:
        """Return a binary stream over the content; close it. ``read1`` of an open input waits for the next bytes."""
        ...

    def value(self, encoding: str | None = None) -> Any:
        """Return the content decoded with `encoding`, by default the encoding of the port.

        A list of values if several producers wrote the content, or an application joined several values in it.
        """
        ...

    def values(self, encoding: str | None = None) -> list[Any]:
        """As `value`, but always a list, also for one value or none."""
        ...

    @property
    def path(self) -> Path:
        """A file or directory with the content. Content in memory is first written to a temporary file."""
        ...

    @property
    def url(self) -> str:
        """URL of the content (`dataURL` in DALiuGE)."""
        ...


class OutputData(Protocol):
    """One output of an attempt. Written data become the content of the drop only if the whole attempt succeeds."""

    port: str
    oid: str
    name: str

    def write(self, data: bytes | bytearray | memoryview | str) -> int:
        """Append to the content, text as UTF-8. Returns the number of bytes."""
        ...

    def open(self) -> BinaryIO:
        """Return a writable stream that appends to the content. It is closed at the latest when the attempt ends."""
        ...

    def put(self, value: Any, encoding: str | None = None) -> None:
        """Write `value` encoded with `encoding`, by default the encoding of the port."""
        ...

    @property
    def path(self) -> Path:
        """Temporary path for a program that writes the content itself (parent exists, the path does not)."""
        ...

    @property
    def is_directory(self) -> bool:
        """Whether the drop holds a directory, to be made at `path`."""
        ...

    @property
    def streams(self) -> bool:
        """Whether consumers may read appended data before the attempt is over."""
        ...

    def skip(self) -> None:
        """Skip this output, and with it its consumers."""
        ...


class Context(Protocol):
    """One attempt of an application: its inputs, outputs and services."""

    @property
    def oid(self) -> str:
        """Text id of the application drop."""
        ...

    @property
    def name(self) -> str:
        """Name of its node."""
        ...

    @property
    def index(self) -> tuple[int, ...]:
        """Position of the drop on each axis of its template, outermost first."""
        ...

    @property
    def attempt(self) -> int:
        """Number of the attempt, from 1."""
        ...

    @property
    def session(self) -> str:
        """Session id."""
        ...

    @property
    def arguments(self) -> Mapping[str, Argument]:
        """Every field of the node by name."""
        ...

    @property
    def inputs(self) -> Sequence[InputData]:
        """The inputs, in the order of the graph."""
        ...

    @property
    def outputs(self) -> Sequence[OutputData]:
        """The outputs, in the order of the graph."""
        ...

    @property
    def directory(self) -> Path:
        """The session's ``files`` directory: base of relative paths, working directory of commands."""
        ...

    def scratch(self) -> str:
        """Return a temporary directory of this attempt, which is removed at its end."""
        ...

    def input(self, port: str) -> InputData | None:
        """Return the first input at `port`."""
        ...

    @property
    def memory_limit(self) -> int:
        """Bytes of memory that the attempt has: what its node declares, or more, see ``--retry-memory``; 0 for none."""
        ...

    def log(self, text: str, level: str = "INFO") -> None:
        """Add a line to the log of the drop."""
        ...

    def wait(self, seconds: float) -> None:
        """Sleep. Raises `Interrupted` as soon as the session is cancelled."""
        ...

    @property
    def missing(self) -> Mapping[str, float]:
        """Share of missing data at each port, from 0 to 1, after failures that were tolerated."""
        ...

    def note_call(self, names: Sequence[str], args: Sequence[Any], named: Mapping[str, Any]) -> None:
        """Note the arguments of the call that is made, for the report of a failure."""
        ...

    def used_memory(self, size: int) -> None:
        """Note how many bytes of memory were used outside of the processes that this one has started."""
        ...

    def command(
        self,
        command: str,
        environment: Mapping[str, str],
        *,
        source: InputData | None = None,
        sink: Callable[[bytes], object] | None = None,
        hidden: Collection[str] = (),
    ) -> int:
        """Run a shell command in `directory` and return its exit status. Its output goes to the log of the drop.

        The command and all its children are stopped when the session is cancelled.

        Parameters
        ----------
        command : str
            Text for bash.
        environment : mapping of str to str
            Variables to add to the environment of this process.
        source : InputData, optional
            Standard input, passed on while it is being written.
        sink : callable, optional
            Gets standard output in blocks, in place of the log.
        hidden : collection of str
            Texts that are replaced by ``***`` in the log.
        """
        ...


class App(ABC):
    """An application. One object serves all attempts of its template in one process; keep no state in it."""

    component: ClassVar[Component]
    streams: ClassVar[bool] = False
    """True for applications that read inputs through `InputData.open` while they are written: over streaming links they
    run together with the producers. Other applications start when their inputs are complete."""
    waits: ClassVar[bool] = False
    """True for applications that mostly wait, as for the network: they run in threads, not in worker processes."""
    fuses: ClassVar[bool] = True
    """Whether it may be one of a chain of applications that run one after another as one unit. False for applications
    that live as long as others, or wait for others."""
    environment_fields: ClassVar[tuple[str, ...]] = ()
    """Fields of `dropflow.apps.runtime_environment` that it uses. A node that has another one is refused."""
    skips: ClassVar[bool] = False
    """True for built-in applications that may skip outputs. Applications of users always may."""

    def __init__(self, template: Template) -> None:
        self.template = template

    @classmethod
    def uses(cls, argument: Argument, template: Template) -> bool:  # noqa: ARG003 - some look at the whole node
        """Return whether the application itself reads this application argument of its node."""
        return any(parameter.name == argument.name for parameter in cls.component.parameters)

    @cached_property
    def parameters(self) -> Mapping[str, Any]:
        """The values of the component's parameters in this node, typed; read-only.

        Raises
        ------
        dropflow.errors.BadParameterError
            Lists every parameter that cannot be used. `dropflow.apps.needs.check` reads them before anything runs.
        """
        return read(self.component, self.template)

    def needs(self) -> tuple[str, ...]:
        """Return what it needs of a host; see `dropflow.apps.needs`."""
        return ()

    def check(self) -> None:  # noqa: B027 - most have nothing to add to their parameters
        """Raise if every attempt would fail, without running or importing anything that the graph names.

        Called before anything runs, and when graphs are only checked or translated. The parameters are checked
        separately.
        """

    def check_ports(  # noqa: B027 - as `check`
        self, inputs: Collection[str], outputs: Collection[str], *, is_certain: bool
    ) -> None:
        """Raise, as `check` does, if every attempt would fail because of the connected ports.

        Parameters
        ----------
        inputs, outputs : collection of str
            Names of the ports that have a link; an empty name for a link without a port.
        is_certain : bool
            Whether the application certainly runs: no application before it may skip outputs.
        """

    @abstractmethod
    def run(self, context: Context) -> None:
        """Do the work of one attempt. Raise to fail."""


# The decorator that describes an application class: what its `Component` would say, from the class itself.

AppType = TypeVar("AppType", bound=type[App])


def component(
    *,
    parameters: Iterable[Parameter] = (),
    ports: Iterable[Port] = (),
    name: str = "",
    description: str = "",
    category: str = "DALiuGEApp",
) -> Callable[[AppType], AppType]:
    """Describe an `App` class as a component of graphs and palettes.

    Parameters
    ----------
    parameters : iterable of Parameter
        The fields that the application reads. Their values are parsed and checked before anything runs.
    ports : iterable of Port
        The ports that a palette offers.
    name : str
        Name in the palette; by default the name of the class.
    description : str
        Text for the palette; by default the docstring of the class.
    category : str
        EAGLE's category of the node.

    Returns
    -------
    callable
        A decorator that sets the attribute `component` of the class. The class name for graphs (`dropclass`) is the
        dotted name of the class.

    Examples
    --------
    >>> @component(parameters=[Parameter(name="limit", type="Float", default=1.0)])
    ... class Threshold(App):
    ...     'Pass values on that reach the limit.'
    ...
    ...     def run(self, context): ...
    >>> Threshold.component.name, Threshold.component.description
    ('Threshold', 'Pass values on that reach the limit.')
    """

    def describe(application: AppType) -> AppType:
        application.component = Component(
            name=name or application.__name__,
            kind=Kind.APP,
            category=category,
            dropclass=f"{application.__module__}.{application.__qualname__}",
            description=" ".join((description or inspect.cleandoc(application.__doc__ or "")).split()),
            parameters=tuple(parameters),
            ports=tuple(ports),
        )
        return application

    return describe
