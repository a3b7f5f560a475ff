"""``dropflow up``: a translator, a master, an island and nodes; ``dropflow down`` ends them."""

from collections.abc import Iterator
from typing import Any

import click
import msgspec

from dropflow.api.addresses import ISLAND_PORT, MASTER_PORT, TRANSLATOR_PORT
from dropflow.cli.common_options import (
    connection_options,
    given_on_command_line,
    hosts_options,
    output_options,
)
from dropflow.cli.exit_status import Exit
from dropflow.cli.output import CommandOutput
from dropflow.cli.servers.server_options import log_level_option, lost_option, memory_option, public_url_option
from dropflow.errors import NotFoundError
from dropflow.submission.options import ConnectionOptions


@click.command("up")
@output_options
@click.option("--nodes", type=click.IntRange(1, 64), default=1, show_default=True, help="Number of node managers.")
@click.option(
    "--port",
    type=click.IntRange(0, 65000),
    default=None,
    help="First of consecutive ports: translator, master, island, nodes; 0 takes any that are free. By default "
    f"{TRANSLATOR_PORT}, {MASTER_PORT}, {ISLAND_PORT}, and any for the nodes.",
)
@click.option("--no-auth", is_flag=True, help="Need no token: every user of this host has access.")
@click.option("--new-token", is_flag=True, help="Make a new token, so that the old one is of no use any more.")
@click.option("--root", metavar="DIR", help="Directory to work in; one in the user's state by default.")
@click.option(
    "--workers",
    type=click.IntRange(1, 10_000),
    help="Worker processes of each node; by default the nodes share the cores.",
)
@memory_option(
    "Memory that all nodes may use together, such as '8 GiB'; each gets an equal share. By default as much as the "
    "machine, its control group and ulimit allow."
)
@click.option(
    "--key", metavar="FILE", help="The cluster key; in the user's configuration by default, made when needed."
)
@click.option(
    "--hosts",
    metavar="FILE",
    help="Start the nodes on these hosts over ssh, as 'dropflow launch ssh' does, and none on this host.",
)
@hosts_options
@public_url_option(of_many=True)
@lost_option("A node that does not answer for this long is lost.")
@log_level_option("The least severe records in the log files of the managers.")
def up_command(
    output: CommandOutput, hosts: str | None, *, skip_unreachable: bool, install: bool, tunnel: bool, **options: Any
) -> Exit:
    """Run a translator, a master, an island and nodes on this host, until SIGINT or SIGTERM.

    All of them listen on loopback, with one token and one key, and are reached from one address in a browser. With
    --hosts, master and island listen on all addresses. 'dropflow down' ends them, too. When they are ready, standard
    output gets one line, {"ready": true, "translator": URL, "master": URL, "island": URL, "nodes": [URL, ...],
    "token": ...}, and standard error that address. The token stays the same when the command is started again. A
    process that ends early is reported, and the others continue. Each writes its log to DIR/NAME/manager.log.
    """
    from dropflow.cli.servers.local_cluster import UpOptions, run

    if hosts is None:
        return run(UpOptions(**options))
    from dropflow.cli.jobs.hosts import usable_hosts
    from dropflow.errors import UsageError
    from managers.jobs.ssh import free_ports

    lost = [f"--{name.replace('_', '-')}" for name in given_on_command_line(("nodes", "workers", "memory", "no_auth"))]
    if lost:
        raise UsageError(f"{lost[0]} is of nodes on this host", hint="leave it out; the file of hosts has such keys")
    here = free_ports(2) if tunnel else ()
    usable = usable_hosts(output, hosts, skip_unreachable=skip_unreachable, install=install, tunnel=here)
    return run(UpOptions(**options, hosts=usable, tunnel=here)) if usable else Exit.BAD_INPUT


# ``dropflow down``: the end of a cluster on this host, and of its nodes on other hosts.


@click.command("down")
@output_options
@connection_options
def down_command(output: CommandOutput, *, manager: ConnectionOptions) -> Exit:
    """End the cluster that dropflow up or dropflow launch ssh has started on this host.

    Its nodes on other hosts end, too. Sessions that run are cancelled. The command returns when the process that
    started the cluster has ended.
    """
    import psutil

    from dropflow.cli.jobs.hosts import end_process
    from dropflow.submission.connection import manager_url
    from dropflow.submission.manager_records import record_for, records_here

    url = manager_url(manager)
    record = record_for(url)
    is_here = record is not None and record in records_here() and bool(record.group)
    parent = psutil.Process(record.process).parent() if record is not None and is_here else None
    if parent is None or not any("dropflow" in word for word in parent.cmdline()):
        hint = "end it where it was started: by Ctrl-C, SIGTERM, systemctl, or the command that cancels its job"
        raise NotFoundError("this manager was not started by 'dropflow up' or 'launch ssh' here", where=url, hint=hint)
    end_process(parent.pid)
    output.answer(DownReply(url=url))
    return Exit.FINISHED


class DownReply(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster that has ended."""

    ok: bool = True
    url: str

    def lines(self) -> Iterator[str]:
        """Yield the manager that has ended."""
        yield f"ended {self.url}"
