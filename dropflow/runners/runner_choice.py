"""The name of a runner, as people write it: ``processes``, ``dask=tcp://host:8786``, ``package.module:function``."""

import importlib
import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from dropflow.errors import BadGraphError, BadParameterError, DropflowError, MissingDependencyError, install_hint
from dropflow.failure import summary_of
from dropflow.formatting import few

if TYPE_CHECKING:
    from dropflow.execution.executor_spec import ExecutorSpec
    from dropflow.execution.interfaces import Runner
    from dropflow.graph.physical import PhysicalGraph


RUNNERS = ("inline", "threads", "processes", "dask", "ray")
ENGINES = ("dask", "ray")
"""Kinds of runners that have an address, as in ``dask=tcp://host:8786``."""
_CONTENTS = ",contents="
_PACKAGES = {"dask": ("distributed", "dask-runner"), "ray": ("ray", "ray")}

RunnerFactory = Callable[["ExecutorSpec", int | None], "Runner"]
"""Makes a runner of the user, from the specification of executors and the number of workers; None for the default."""


class RunnerChoice(msgspec.Struct, frozen=True):
    """A runner.

    Attributes
    ----------
    kind : str
        One of `RUNNERS`; ``custom`` for a function that makes a runner.
    address : str
        Address of the engine; empty for a new engine on this machine. For a custom runner, ``package.module:function``.
    contents : str
        URL of a store for contents, where workers of the engine cannot use the session directory; empty for none.
    """

    kind: str
    address: str = ""
    contents: str = ""

    @property
    def is_engine(self) -> bool:
        """Whether another engine runs the attempts."""
        return self.kind in ENGINES

    @property
    def shares_memory(self) -> bool:
        """Whether all attempts run on this machine, so that contents can be in its shared memory."""
        return not self.address

    def refuse_unusable(self, graph: "PhysicalGraph") -> None:
        """Raise if this runner cannot run a graph, before anything runs.

        Raises
        ------
        MissingDependencyError
            The package of the engine, or of its store for contents, is not installed.
        BadParameterError
            The store for contents has a URL that cannot be one.
        BadGraphError
            The graph has streams, MPI jobs or applications with GPUs that this runner cannot run.
        """
        from dropflow.apps.registry import streaming_links  # noqa: PLC0415 - all components; names need none
        from dropflow.graph.templates import needs_of  # noqa: PLC0415 - all components; names need none

        self.refuse_missing()
        if self.contents:
            from dropflow.data.remote import check_url  # noqa: PLC0415 - imports the engine

            check_url(self.contents)
        if self.is_engine and (rows := streaming_links(graph)):
            link = graph.links[rows[0]]
            reader, data = graph.templates[link.target].name, graph.templates[link.source].name
            more = f", and {len(rows) - 1} more links" if len(rows) > 1 else ""
            raise BadGraphError(
                f"{reader!r} reads {data!r} while it is written{more}, and the runner {self.kind!r} has no streams",
                where=graph.name,
                hint="choose the runner processes or threads, or nodes; or clear 'streaming' of these links",
            )
        hungry = [template.name for template in graph.templates if needs_of(template).gpus]
        if hungry and (self.is_engine or self.kind == "threads"):
            text = f"{few(hungry)} asks for GPUs, and the runner {self.kind!r} gives none"
            raise BadGraphError(text, where=graph.name, hint="choose the runner processes, or nodes")
        ranks = max(
            (axis.size for template in graph.templates for axis in template.axes if axis.kind == "mpi"), default=1
        )
        if self.kind == "inline" and ranks > 1:
            text = f"the runner 'inline' runs one attempt at a time, and an MPI job has {ranks} ranks that run at once"
            raise BadGraphError(text, hint="choose the runner threads or processes")

    def refuse_missing(self) -> None:
        """Raise if the package of the engine is not installed.

        Raises
        ------
        MissingDependencyError
            It is not installed.
        """
        if self.kind in _PACKAGES:
            package, extra = _PACKAGES[self.kind]
            if importlib.util.find_spec(package) is None:
                raise MissingDependencyError(
                    f"--runner {self.kind} needs the package {package}, which is not installed",
                    hint=install_hint(extra),
                )

    def custom(self, spec: "ExecutorSpec", workers: int | None) -> "Runner":
        """Return the runner that a function of the user makes.

        Raises
        ------
        BadParameterError
            The function cannot be imported, or raises an exception.
        """
        module, _, function = self.address.partition(":")
        try:
            factory: RunnerFactory = getattr(importlib.import_module(module), function)
        except Exception as error:
            raise BadParameterError(
                f"the runner {self.address!r} cannot be imported: {summary_of(error)}",
                hint="give the name of a function that can be imported, as in package.module:function",
            ) from error
        try:
            return factory(spec, workers)
        except DropflowError:
            raise
        except Exception as error:
            raise BadParameterError(
                f"the function of the runner {self.address!r} failed: {summary_of(error)}",
                hint="it takes an ExecutorSpec and the number of workers, and returns a runner",
            ) from error


PROCESSES = RunnerChoice("processes")
"""The default runner."""


def parse_runner(text: str) -> RunnerChoice:
    """Return the runner that a text names.

    Raises
    ------
    BadParameterError
        It names no runner, or the address is not valid for its engine.
    """
    name, has_contents, contents = text.partition(_CONTENTS)
    kind, has_address, address = name.partition("=")
    if has_contents and not (kind in ENGINES and "://" in contents):
        raise BadParameterError(
            f"the runner {text!r} has no URL for contents, or cannot use one",
            hint=f"give an engine and a URL that its workers reach, as in dask=tcp://host:8786{_CONTENTS}s3://bucket/directory",
        )
    if kind in RUNNERS and (kind in ENGINES or not has_address) and bool(address) == bool(has_address):
        if address:
            from dropflow.runners.external import check_address  # noqa: PLC0415 - imports the engine

            check_address(kind, address)
        return RunnerChoice(kind, address, contents)
    module, has_function, function = text.partition(":")
    if has_function and function.isidentifier() and all(part.isidentifier() for part in module.split(".")):
        return RunnerChoice("custom", text)
    raise BadParameterError(
        f"there is no runner {text!r}",
        hint=f"one of {', '.join(RUNNERS)}, dask=ADDRESS, ray=ADDRESS, or package.module:function",
    )
