"""The decorator that makes a Python function an application of graphs."""

import contextvars
import functools
import inspect
import types
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from dropflow.apps.app_parameters import COMMON_APP
from dropflow.builder.annotations import ANY, annotations_of
from dropflow.builder.handles import CarriedValue, Data, Formula, GroupedData
from dropflow.builder.source import code_of, import_path
from dropflow.errors import UsageError

if TYPE_CHECKING:
    from dropflow.builder.nodes import GraphNodes

__all__ = ["OPEN_GRAPHS", "AppFunction", "app", "as_app"]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
OPEN_GRAPHS: contextvars.ContextVar["tuple[GraphNodes, ...]"] = contextvars.ContextVar("open graphs", default=())
"""The graphs of the ``with`` statements around the present call, outermost first."""

_SETTINGS = {parameter.name: parameter for parameter in COMMON_APP}


class AppFunction(Generic[Arguments, Result]):
    """A function that is an application of graphs; `app` makes it.

    Inside ``with Graph(...)``, or with data of a graph as an argument, a call adds a node to the graph and returns its
    `Data`. Any other call is an ordinary call of the function.
    """

    def __init__(
        self,
        function: Callable[Arguments, Result],
        *,
        name: str = "",
        outputs: tuple[str, ...] = (),
        imported: bool = False,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.outputs = _checked_outputs(outputs)
        self.settings = _checked_settings(settings or {})
        self.is_imported = imported or not isinstance(function, types.FunctionType)
        given = getattr(function, "__name__", "") or type(function).__name__
        self.title = name or given.strip("_").replace("_", " ").capitalize() or given
        try:
            self.signature: inspect.Signature | None = inspect.signature(function)
        except (TypeError, ValueError):
            self.signature = None  # many functions written in C
        self.annotations = annotations_of(function)

    def options(
        self, *, name: str = "", outputs: tuple[str, ...] | None = None, **settings: Any
    ) -> "AppFunction[Arguments, Result]":
        """Return this application with other options; see `app`."""
        return AppFunction(
            self.function,
            name=name or self.title,
            outputs=self.outputs if outputs is None else outputs,
            imported=self.is_imported,
            settings={**self.settings, **settings},
        )

    @property
    def code(self) -> str:
        """The source for the field ``func_code``; empty if the function is imported.

        Raises
        ------
        UsageError
            See `dropflow.builder.source.code_of`.
        """
        return code_of(self.function) if isinstance(self.function, types.FunctionType) and not self.is_imported else ""

    @property
    def path(self) -> str:
        """The value of the field ``func_name``.

        Raises
        ------
        UsageError
            See `dropflow.builder.source.import_path`.
        """
        return import_path(self.function) if self.is_imported else self.function.__name__

    @property
    def returned(self) -> Any:
        """The annotation of what it returns."""
        own = self.function if isinstance(self.function, type) else ANY
        return self.annotations.get("return", own)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, or add it to a graph."""
        graph = _graph_of((*args, *kwargs.values()))
        return self.function(*args, **kwargs) if graph is None else graph.call(self, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<app {self.title!r}>"


@overload
def app(function: Callable[Arguments, Result], /) -> AppFunction[Arguments, Result]: ...


@overload
def app(
    *, name: str = "", outputs: tuple[str, ...] = (), imported: bool = False, **settings: Any
) -> Callable[[Callable[Arguments, Result]], AppFunction[Arguments, Result]]: ...


def app(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str = "",
    outputs: tuple[str, ...] = (),
    imported: bool = False,
    **settings: Any,
) -> Any:
    """Make a function an application of graphs. Its parameters are the input ports and arguments of the node.

    Parameters
    ----------
    function : callable
        The function. The graph has its code, with the imports, functions and constants of its file that it uses.
    name : str
        Name of the node; by default made from that of the function.
    outputs : tuple of str
        Names of several outputs. The function then returns a dictionary with exactly these keys, and a call in a graph
        a tuple of data.
    imported : bool
        Have the graph name the function, and not contain its code: its module must be installed where the graph runs.
    **settings
        Parameters of all applications (``docs/reference/components.md``), such as ``n_tries=3`` or ``num_cpus=2``.

    Returns
    -------
    AppFunction
        The application; with options only, a decorator that makes one.

    Raises
    ------
    UsageError
        There is no such setting, or the names of the outputs are no names.

    Examples
    --------
    >>> @app(n_tries=2)
    ... def double(x: int) -> int:
    ...     return 2 * x
    >>> double(4)
    8
    """
    if function is not None:
        return AppFunction(function)
    return lambda given: AppFunction(given, name=name, outputs=outputs, imported=imported, settings=settings)


def as_app(function: Callable[..., Any]) -> AppFunction[..., Any]:
    """Return a function as an application; one that is decorated is returned as it is.

    Raises
    ------
    UsageError
        It cannot be called.
    """
    if isinstance(function, AppFunction):
        return function
    if not callable(function):
        raise UsageError(f"{function!r:.60} is not a function", hint="give a function, and its arguments after it")
    return AppFunction(function)


def _graph_of(values: tuple[Any, ...]) -> "GraphNodes | None":
    for value in values:
        for one in value if isinstance(value, list | tuple) else (value,):
            if isinstance(one, Data | GroupedData):
                return one.graph
            if isinstance(one, CarriedValue):
                return one.first.graph
    opened = OPEN_GRAPHS.get()
    if not opened and any(isinstance(value, Formula) for value in values):
        raise UsageError("a parameter of a graph was given to a function outside a graph", hint="use with Graph(...)")
    return opened[-1] if opened else None


def _checked_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    for name in settings:
        if name not in _SETTINGS:
            near = get_close_matches(name, _SETTINGS, 1)
            raise UsageError(
                f"applications have no setting {name!r}",
                hint=f"did you mean {near[0]!r}?" if near else f"they have {', '.join(sorted(_SETTINGS))}",
            )
    return dict(settings)


def _checked_outputs(outputs: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(outputs)
    wrong = [name for name in names if not str(name).isidentifier()] or isinstance(outputs, str)
    if wrong or len(set(names)) < len(names):
        raise UsageError(f"the outputs {names!r} are not different names", hint='give a tuple such as ("low", "high")')
    return names
