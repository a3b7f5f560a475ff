"""``dropflow nodes``: the nodes of a manager and their load."""

from collections.abc import Iterator

import click
import msgspec

from dropflow.cli.exit_status import Exit
from dropflow.cli.options import ConnectionOptions, connection_options, output_options
from dropflow.cli.output import CommandOutput
from dropflow.cli.tables import columns
from dropflow.formatting import format_size, plural
from dropflow.rest.hosts import cores_of_hosts
from dropflow.rest.manager_records import NodeInfo

__all__ = ["command"]


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
        rows = [
            (
                node.name,
                node.state,
                node.island or "-",
                f"{node.load.busy}/{node.load.workers}",
                f"{node.load.processor:.0f} %",
                f"{format_size(node.load.memory_free)} of {format_size(node.load.memory)}",
                format_size(node.load.disk_free),
                node.sessions,
                node.text or node.url,
            )
            for node in self.nodes
        ]
        header = ("node", "state", "island", "busy", "processor", "memory free", "disk free", "sessions", "address")
        yield from columns(rows, header=header, indent="")
        if len(self.nodes) > 1:
            number = plural(sum(self.cores.values()), "core")
            yield f"{plural(len(self.nodes), 'node')} on {plural(len(self.cores), 'host')} with {number}"


@click.command("nodes")
@output_options
@connection_options
def command(output: CommandOutput, *, manager: ConnectionOptions) -> Exit:
    """List the nodes at or below a manager, with their load.

    Exit status 1 if one of them is neither alive nor drained. A drained node is shown until it is started again or
    removed from the children of its island.
    """
    from dropflow.cli.connection import connect

    with connect(manager) as client:
        found = client.nodes()
        ok = all(node.state in ("alive", "drained") for node in found)
        output.answer(NodesReply(ok=ok, url=client.url, nodes=found, cores=cores_of_hosts(found)))
    return Exit.FINISHED if ok else Exit.FAILED
