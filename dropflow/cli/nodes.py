"""``dropflow nodes``: the nodes of a manager and their load."""

from typing import TYPE_CHECKING

import click

from dropflow.cli.client_options import asks
from dropflow.cli.exits import Exit
from dropflow.cli.options import speaks

if TYPE_CHECKING:
    from dropflow.cli.connection import Target
    from dropflow.cli.output import Output

__all__ = ["nodes"]


@click.command("nodes")
@speaks
@asks
def nodes(output: "Output", *, target: "Target") -> Exit:
    """List the nodes at or below a manager, with their load. Exit status 1 if one of them is not alive."""
    from dropflow.cli.connection import connect
    from dropflow.cli.manager_replies import NodesReply

    with connect(target) as client:
        found = client.nodes()
        ok = all(node.state == "alive" for node in found)
        output.answer(NodesReply(ok=ok, url=client.url, nodes=found))
    return Exit.FINISHED if ok else Exit.FAILED
