"""dropflow: a decentralised, event-driven dataflow runtime.

This module is the public interface: everything in `__all__` is imported from here, and is loaded when it is first used.
`dropflow.testing` has what tests of applications need. Other modules are internal and may change; the guides to an
application, a store and a runner of one's own name the few that these need.

The package is laid out in rings; an outer ring imports inner ones, never the other way. `pyproject.toml` has the whole
contract::

    dropflow.cli                       commands; each is imported when it is run
    dropflow.dask                      collections of dask
    dropflow.builder                   graphs written in Python
    dropflow.submission                the choice of a manager, and what is submitted to it
    dropflow.functions                 translate, check and run a graph on this machine
    managers | translator | palettes   sessions on nodes; logical graphs unrolled and planned; palettes for EAGLE
    dropflow.testing                   what tests of applications need
    dropflow.sessions                  one graph on this machine, and what runs leave in their directories
    dropflow.dask_tasks                tasks of dask as applications
    dropflow.web                       what the pages of all servers share
    dropflow.runners                   attempts run in threads, processes and other engines
    dropflow.reuse                     results that are not computed twice
    dropflow.apps                      applications, and the context of one attempt
    dropflow.api | dropflow.data       operations and records of managers; stores of data drops
    dropflow.execution                 the sans-IO core, sessions, the journal
    dropflow.times | dropflow.preview  where the time of a run went; pictures and tables of contents
    dropflow.graph                     physical graphs as tables, their files and formats
    dropflow.states | dropflow.host    states of drops and sessions; processors and memory of this host
    dropflow.errors | dropflow.ids     and other modules that all of them use

Read `dropflow.graph.physical` first (what a graph is), then `dropflow.execution.decisions.core` (how it advances).
"""

from typing import TYPE_CHECKING

from dropflow.version import __version__

if TYPE_CHECKING:
    from dropflow import testing
    from dropflow.apps.app_interface import App, Context, InputData, OutputData, component
    from dropflow.apps.formats import FitsPath, InputPath, MeasurementSet, OutputPath
    from dropflow.apps.missing_data import missing, write_missing
    from dropflow.builder.functions import AppFunction, app
    from dropflow.builder.graph import Graph
    from dropflow.builder.handles import Data, glob
    from dropflow.builder.results import GraphRun, SubmittedGraph
    from dropflow.errors import (
        AmbiguousError,
        AppError,
        BadFileError,
        BadGraphError,
        BadParameterError,
        ConflictError,
        DropflowError,
        InternalError,
        Interrupted,
        MissingDependencyError,
        NotFoundError,
        StorageError,
        UnknownComponentError,
        UsageError,
        WorldError,
    )
    from dropflow.execution.statistics import FailureReport
    from dropflow.failure import Problem, Severity
    from dropflow.functions import DropContent, RunResult, check, run, translate
    from dropflow.graph.build import GraphBuilder
    from dropflow.graph.codec import load, save
    from dropflow.graph.components import Component, Parameter, Port
    from dropflow.graph.physical import PhysicalGraph
    from dropflow.graph.templates import Argument, Kind, Link, Template
    from dropflow.states import DropState, SessionState
    from translator.logical import LogicalGraph
    from translator.pipeline import Translation

__all__ = [
    "AmbiguousError",
    "App",
    "AppError",
    "AppFunction",
    "Argument",
    "BadFileError",
    "BadGraphError",
    "BadParameterError",
    "Component",
    "ConflictError",
    "Context",
    "Data",
    "DropContent",
    "DropState",
    "DropflowError",
    "FailureReport",
    "FitsPath",
    "Graph",
    "GraphBuilder",
    "GraphRun",
    "InputData",
    "InputPath",
    "InternalError",
    "Interrupted",
    "Kind",
    "Link",
    "LogicalGraph",
    "MeasurementSet",
    "MissingDependencyError",
    "NotFoundError",
    "OutputData",
    "OutputPath",
    "Parameter",
    "PhysicalGraph",
    "Port",
    "Problem",
    "RunResult",
    "SessionState",
    "Severity",
    "StorageError",
    "SubmittedGraph",
    "Template",
    "Translation",
    "UnknownComponentError",
    "UsageError",
    "WorldError",
    "__version__",
    "app",
    "check",
    "component",
    "glob",
    "load",
    "missing",
    "run",
    "save",
    "testing",
    "translate",
    "write_missing",
]

_MODULES = {
    "dropflow.apps.app_interface": ("App", "Context", "InputData", "OutputData", "component"),
    "dropflow.apps.formats": ("FitsPath", "InputPath", "MeasurementSet", "OutputPath"),
    "dropflow.apps.missing_data": ("missing", "write_missing"),
    "dropflow.builder.functions": ("AppFunction", "app"),
    "dropflow.builder.graph": ("Graph",),
    "dropflow.builder.handles": ("Data", "glob"),
    "dropflow.builder.results": ("GraphRun", "SubmittedGraph"),
    "dropflow.graph.components": ("Component", "Parameter", "Port"),
    "dropflow.execution.statistics": ("FailureReport",),
    "dropflow.graph.build": ("GraphBuilder",),
    "dropflow.graph.physical": ("PhysicalGraph",),
    "dropflow.graph.templates": ("Argument", "Kind", "Link", "Template"),
    "dropflow.graph.codec": ("load", "save"),
    "dropflow.failure": ("Problem", "Severity"),
    "dropflow.functions": ("DropContent", "RunResult", "check", "run", "translate"),
    "dropflow.states": ("DropState", "SessionState"),
    "translator.logical": ("LogicalGraph",),
    "translator.pipeline": ("Translation",),
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a public name when it is first used: those that no module above has are classes of errors."""
        from importlib import import_module  # noqa: PLC0415 - not needed until then

        from dropflow.public_names import imported  # noqa: PLC0415 - not needed until then

        if name == "testing":
            return import_module("dropflow.testing")
        return imported("dropflow", {**_MODULES, "dropflow.errors": __all__}, name)

    def __dir__() -> list[str]:
        """List the public names."""
        return __all__
