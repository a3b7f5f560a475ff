"""``dropflow pool``: nodes of an island that a batch system gives while work waits for them."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dropflow.cli.common_options import Duration, connection_options, output_options
from dropflow.cli.exit_status import Exit
from dropflow.cli.jobs.launch import refuse_job_array, site_options
from dropflow.cli.output import CommandOutput
from dropflow.errors import UsageError
from dropflow.submission.options import ConnectionOptions

if TYPE_CHECKING:
    from managers.jobs.batch import Facility


@click.group("pool")
def pool_command() -> None:
    """Nodes that an island gets from a batch system while work waits for them.

    A pool is a process of this host, which has a directory. While attempts whose inputs are there wait, and all
    of its nodes work, it submits a job with one node, one at a time. A node without work is given back.
    """


@pool_command.command("add")
@output_options
@click.argument("system", type=click.Choice(["slurm"]))
@click.argument("arguments", metavar="[-- ARGUMENT...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--max", "most", type=click.IntRange(min=1), required=True, help="Nodes that it may have.")
@click.option("--min", "least", type=click.IntRange(min=0), default=0, show_default=True, help="Nodes that it keeps.")
@site_options
@click.option("--name", default="pool", show_default=True, metavar="NAME", help="Name of the pool.")
@click.option(
    "--idle", type=Duration(), default="5m", show_default=True, help="When a node without work is given back."
)
@click.option(
    "--margin",
    type=Duration(),
    default="60s",
    show_default=True,
    help="How long before the walltime a node is drained, at most a quarter of it.",
)
@click.option(
    "--every",
    type=Duration(),
    default="30s",
    show_default=True,
    help="The batch system is asked at most once in this time, and for one job.",
)
@click.option("--dry-run", is_flag=True, help="Print the batch script of a node, and do nothing.")
@connection_options
def add_command(
    output: CommandOutput,
    *,
    manager: ConnectionOptions,
    system: str,
    arguments: tuple[str, ...],
    most: int,
    least: int,
    site: "Facility",
    name: str,
    idle: float,
    margin: float,
    every: float,
    dry_run: bool,
) -> Exit:
    """Get nodes for an island from SYSTEM while work waits for them.

    Arguments behind -- go to sbatch. The island needs a cluster key, which its nodes get in a file. Hosts of the batch
    system must see the directory of the pool, and reach the island.
    """
    from dropflow.cli.jobs.pool_process import add_pool
    from managers.jobs.pool import PoolSettings

    if least > most:
        raise UsageError(f"--min {least} is more than --max {most}")
    refuse_job_array((*arguments, *site.lines))
    if not site.time:
        raise UsageError("a pool needs --time, the walltime of its jobs")
    settings = PoolSettings(
        least=least, most=most, idle=idle, seconds=site.seconds, margin=site.margin(margin), every=every
    )
    return add_pool(
        output,
        manager,
        system=system,
        name=name,
        settings=settings,
        site=site,
        arguments=arguments,
        dry_run=dry_run,
    )


@pool_command.command("list")
@output_options
def list_command(output: CommandOutput) -> Exit:
    """List the pools of this user."""
    from dropflow.cli.jobs.pool_process import list_pools

    return list_pools(output)


@pool_command.command("pause")
@output_options
@click.argument("name", default="pool")
def pause_command(output: CommandOutput, *, name: str) -> Exit:
    """Let the pool NAME ask for no more nodes. Its nodes stay until they have no work."""
    from dropflow.cli.jobs.pool_process import want

    return want(output, name, "paused")


@pool_command.command("resume")
@output_options
@click.argument("name", default="pool")
def resume_command(output: CommandOutput, *, name: str) -> Exit:
    """Let the pool NAME ask for nodes again, also if it paused itself, or its process has ended."""
    from dropflow.cli.jobs.pool_process import want

    return want(output, name, "on")


@pool_command.command("remove")
@output_options
@click.argument("name", default="pool")
def remove_command(output: CommandOutput, *, name: str) -> Exit:
    """Drain all nodes of the pool NAME, cancel its jobs, and end it. Its directory stays.

    The command returns when no job is left: what runs on the nodes has the time of --margin to end.
    """
    from dropflow.cli.jobs.pool_process import remove_pool

    return remove_pool(output, name)


@pool_command.command("work", hidden=True)
@output_options
@click.argument("directory")
def work_command(output: CommandOutput, *, directory: str) -> Exit:
    """Be the process of a pool."""
    from dropflow.cli.jobs.pool_process import run_pool

    return run_pool(output, Path(directory))
