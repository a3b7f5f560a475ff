"""A graph that is written in Python, saved, and run."""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

from dropflow import public
from dropflow.builder.blocks import GraphBlocks
from dropflow.builder.document import ojs_bytes, v4_bytes
from dropflow.builder.functions import OPEN_GRAPHS
from dropflow.builder.results import GraphRun, SubmittedGraph, connected, submit
from dropflow.errors import BadGraphError, DropflowError, StorageError, UsageError
from dropflow.notebook import problems_html
from dropflow.problems import Problem
from dropflow.rest.patience import PATIENCE, PatientClient
from translator.pipeline import Translation

__all__ = ["Graph"]


class Graph(GraphBlocks):
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
        write = v4_bytes if schema == "V4" else ojs_bytes
        return write(self.drawing, self.description)

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
