"""Drawings that run: each application returns its name around what it read, so that results show the structure."""

import pickle
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from dropflow.graph.order import leaves
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import kept_together, placement_groups
from dropflow.graph.text_ids import oids
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from dropflow.states import SessionState
from tests.managers.node.conftest import Cluster
from tests.translator.drawing import Drawing
from translator.logical import Field, NodeKind
from translator.pipeline import translate

_CODE = """
def {name}(input=None):
    def flat(value):
        return [one for item in value for one in flat(item)] if isinstance(value, list) else [value]
    return "{name}" + ("" if input is None else "(" + " ".join(flat(input)) + ")")
"""


class Worked(Drawing):
    """A drawing whose applications are functions with the ports ``input`` and ``output``."""

    def application(self, name: str) -> dict[str, Any]:
        """Return the fields of a function that returns its name around its inputs."""
        return {
            "dropclass": "dlg.apps.pyfunc.PyFuncApp",
            "func_name": name,
            "func_code": _CODE.format(name=name),
            "input": _port(name, "input", "InputPort"),
            "output": _port(name, "output", "OutputPort"),
        }

    def branch(self, name: str, condition: str) -> "Worked":
        """Add a branch with the input ``x``, whose condition is an expression of it."""
        ports = {
            port: _port(name, port, "InputPort" if port == "x" else "OutputPort") for port in ("x", "true", "false")
        }
        code = f"def {name}(x): return {condition}"
        values = {"dropclass": "dlg.apps.simple.Branch", "func_name": name, "func_code": code, **ports}
        self._node(name, "Branch", NodeKind.APP, values)
        return self

    def mpi(self, name: str, ranks: int, command: str) -> "Worked":
        """Add an MPI job whose ranks run a command that writes ``{out}``, without a launcher."""
        values = {"dropclass": "", "num_of_procs": ranks, "command": command, "launcher": "none"}
        out = Field(id=f"{name}.out", name="out", usage="OutputPort", encoding="path", type="Object")
        self._node(name, "Mpi", NodeKind.APP, {**values, "out": out})
        return self

    def link_any(self, source: str, target: str) -> "Worked":
        """Link data to an application that has no port for it."""
        super().link(source, target)
        return self

    def link(
        self, *names: str, aware: bool = False, closes: bool = False, ports: tuple[str, str] = ("", "")
    ) -> "Worked":
        """Link nodes in a chain, at the ports of the functions."""
        for source, target in pairwise(names):
            at = (ports[0] or f"{source}.output", ports[1] or f"{target}.input")
            super().link(source, target, aware=aware, closes=closes, ports=at)
        return self


def _port(node: str, name: str, usage: str) -> Field:
    return Field(id=f"{node}.{name}", name=name, type="Object", usage=usage, parameter_type="ApplicationArgument")


def unrolled(drawing: Drawing) -> PhysicalGraph:
    """Return the physical graph of a drawing, which must have no errors."""
    return translate(drawing.graph()).graph


def run_here(graph: PhysicalGraph, directory: Path) -> list[str]:
    """Run a graph in this process; return the contents of its leaves, sorted."""
    has_ranks = any(axis.kind == "mpi" for template in graph.templates for axis in template.axes)
    runner = "threads" if has_ranks else "inline"  # ranks run at the same time
    result = local_run.run(graph, local_run.prepare_directory(directory, overwrite=True), RunOptions(runner=runner))
    assert result.status is SessionState.FINISHED
    return sorted(_text(path.read_bytes()) for path in (directory / "results").iterdir())


def run_on_nodes(graph: PhysicalGraph, cluster: Cluster, seed: int, session: str) -> list[str]:
    """Run a graph on three nodes, each drop on a random one; return the contents of its leaves, sorted.

    Leaves that are skipped, as on one side of a branch, have none. The ranks of an MPI job are on the node of one of
    them.
    """
    part = np.random.default_rng(seed).integers(0, 3, graph.drops).astype(np.int32)
    part[:3] = np.arange(3)[: len(part)]
    groups = placement_groups(graph)
    if groups is not None and not groups.exclusive.any():
        part = kept_together(part, groups, 3, np.ones(graph.drops))
    placed = replace(graph, part=part)
    ended = cluster.run(placed, session)
    assert {detail.status for detail in ended.values()} == {"FINISHED"}, ended
    rows = leaves(graph)
    names = list(cluster.nodes)
    found = []
    for row, oid in zip(rows.tolist(), oids(graph, rows.tolist()), strict=True):
        node = cluster[names[part[row]]]
        if node.drop(session, oid).state != "SKIPPED":
            found.append(b"".join(node.data(session, oid).chunks))
    return sorted(_text(one) for one in found)


def _text(content: bytes) -> str:
    return str(pickle.loads(content))
