"""``dropflow nodes``: the nodes of a manager and their load."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import msgspec

from dropflow.api.node_records import NodeComponents, NodeInfo, cores_of_hosts
from dropflow.cli.candidates import graphs
from dropflow.cli.common_options import connection_options, output_options
from dropflow.cli.exit_status import Exit
from dropflow.cli.output import CommandOutput, columns
from dropflow.formatting import few, format_size, plural
from dropflow.submission.options import ConnectionOptions

if TYPE_CHECKING:
    from dropflow.api.client import Client


class NodesReply(msgspec.Struct, frozen=True, kw_only=True):
    """All nodes at or below a manager; not ok unless each of them is alive or drained.

    `cores` has the processors of each host: nodes on one host share them.
    """

    ok: bool
    url: str
    nodes: tuple[NodeInfo, ...]
    cores: dict[str, int]

    def lines(self) -> Iterator[str]:
        """One line a node."""
        if not self.nodes:
            yield f"no nodes at {self.url}"
            return
        has_gpus = any(node.load.gpus for node in self.nodes)
        rows = [
            (
                node.name,
                node.state,
                node.island or "-",
                f"{node.load.busy}/{node.load.workers}",
                f"{node.load.processor:.0f} %",
                f"{format_size(node.load.memory_free)} of {format_size(node.load.memory)}",
                *([f"{node.load.gpus_free} of {node.load.gpus}"] if has_gpus else []),
                format_size(node.load.disk_free),
                node.sessions,
                f"{node.url}  {node.text}".strip(),
            )
            for node in self.nodes
        ]
        gpus = ("GPUs free",) if has_gpus else ()
        header = ("node", "state", "island", "busy", "processor", "memory free", *gpus, "disk free", "sessions")
        yield from columns(rows, header=(*header, "address"), indent="")
        if len(self.nodes) > 1:
            number = plural(sum(self.cores.values()), "core")
            yield f"{plural(len(self.nodes), 'node')} on {plural(len(self.cores), 'host')} with {number}"


class MissingComponent(msgspec.Struct, frozen=True, kw_only=True):
    """A component of a graph that a node cannot run: what is missing there, and what to install."""

    component: str
    node: str
    missing: str
    hint: str


class ComponentsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The applications that the nodes of a manager can run; not ok if no node can run a component of the graph."""

    ok: bool
    url: str
    nodes: tuple[NodeComponents, ...]
    missing: tuple[MissingComponent, ...] = ()

    def lines(self) -> Iterator[str]:
        """One line a node; then one for each component that one of them cannot run."""
        rows = [
            (node.node, node.python, node.environment, node.engine or "-", str(node.applications))
            for node in self.nodes
        ]
        header: tuple[str, ...] = ("node", "Python", "environment", "containers", "built-in applications")
        yield from columns(rows, header=header, indent="")
        places: dict[str, list[str]] = {}
        for node in self.nodes:
            for component in node.registered:
                places.setdefault(component, []).append(node.node)
        if places:
            yield ""
            own = [(name, few(nodes)) for name, nodes in sorted(places.items())]
            yield from columns(own, header=("component of a package", "nodes"), indent="")
        if self.missing:
            header = ("component", "node", "missing", "what to do")
            yield ""
            yield from columns(
                [(lack.component, lack.node, lack.missing, lack.hint) for lack in self.missing],
                header=header,
                indent="",
            )


@click.command("nodes")
@output_options
@connection_options
@click.option(
    "--components",
    "graph",
    is_flag=False,
    flag_value="",
    metavar="[GRAPH]",
    shell_complete=graphs,
    help="Show what each node can run; with GRAPH also which of its components a node cannot run, and why.",
)
def nodes_command(output: CommandOutput, *, manager: ConnectionOptions, graph: str | None) -> Exit:
    """List the nodes at or below a manager, with their load.

    Exit status 1 if one of them is neither alive nor drained. A drained node is shown until it is started again or
    removed from the children of its island. With --components GRAPH, exit status 1 if a component of it can run on none
    of the nodes.
    """
    with manager.connect() as client:
        if graph is not None:
            found_there = _components(client, graph)
            output.answer(found_there)
            return Exit.FINISHED if found_there.ok else Exit.FAILED
        nodes = client.nodes()
        ok = all(node.state in ("alive", "drained") for node in nodes)
        output.answer(NodesReply(ok=ok, url=client.url, nodes=nodes, cores=cores_of_hosts(nodes)))
    return Exit.FINISHED if ok else Exit.FAILED


def _components(client: "Client", source: str) -> ComponentsAnswer:
    """Return what the nodes can run, and which components of the graph in a file they cannot run."""
    from dropflow.apps.needs import host_needs
    from dropflow.cli.graphs.graph_files import read_graph

    templates = read_graph(source, components=None).graph.templates if source else ()
    needs = host_needs(templates)
    nodes = client.components(sorted({need for wanted in needs.values() for need in wanted}))
    lacks = [
        (row, machine.node, lack)
        for row, wanted in needs.items()
        for machine in nodes
        for lack in machine.lacks
        if lack.need in wanted
    ]
    refused = {row: {node for at, node, _ in lacks if at == row} for row, _, _ in lacks}
    return ComponentsAnswer(
        ok=all(len(refusing) < len(nodes) for refusing in refused.values()),
        url=client.url,
        nodes=nodes,
        missing=tuple(
            MissingComponent(
                component=templates[row].app_name or templates[row].name,
                node=node,
                missing=lack.text,
                hint=lack.hint,
            )
            for row, node, lack in lacks
        ),
    )
