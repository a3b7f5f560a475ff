"""``dropflow node``, ``island``, ``master``, ``daemon`` and ``translator``: the servers of a cluster."""

import logging
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from dropflow.api.addresses import DAEMON_PORT, ISLAND_PORT, LINKS_PORT, MASTER_PORT, NODE_PORT, TRANSLATOR_PORT
from dropflow.cli.common_options import Decorator, Duration, grouped, output_options
from dropflow.cli.exit_status import Exit
from dropflow.cli.output import CommandOutput
from dropflow.cli.servers.server_options import (
    DiscoverOptions,
    ServeOptions,
    discover_options,
    lost_option,
    memory_option,
    serve_options,
    suspect_option,
)

if TYPE_CHECKING:
    from dropflow.cli.servers.server_process import ServerContext


_log = logging.getLogger("dropflow.cli")
_DRAIN_SECONDS = 30.0
"""Seconds that Slurm and Kubernetes wait by default between SIGTERM and SIGKILL."""
_Role = Literal["node", "island", "master"]


def _node_runner(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """Refuse what a node cannot run applications with, before anything starts."""
    del context, parameter
    from dropflow.errors import BadParameterError
    from dropflow.runners.runner_choice import parse_runner

    try:
        choice = parse_runner(value)
    except BadParameterError as error:
        raise click.BadParameter(f"{error.text} ({error.hint})") from error
    if choice.kind != "processes" and not (choice.is_engine and choice.address):
        raise click.BadParameter(f"a node cannot use the runner {value!r}; use processes, dask=ADDRESS or ray=ADDRESS")
    return value


@click.command("node")
@output_options
@serve_options(NODE_PORT)
@click.option(
    "--links-port",
    type=click.IntRange(0, 65535),
    default=LINKS_PORT,
    show_default=True,
    help="Port for events and data of other nodes; 0 takes any that is free.",
)
@click.option(
    "--runner",
    default="processes",
    show_default=True,
    metavar="RUNNER",
    callback=_node_runner,
    help="Where applications run: 'processes' of this host, or 'dask=ADDRESS' or 'ray=ADDRESS', the workers of that "
    "cluster, for which the node stands: 'dask=ADDRESS,contents=URL' if they see no common directory.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 10_000),
    help="Worker processes; one per core by default. On Dask, the most attempts of a session at a time.",
)
@memory_option(
    "Memory that the node and its attempts may use together, such as '2 GiB'; by default as much as the machine, its "
    "control group and ulimit allow. Contents beyond go to the disk, and attempts wait."
)
@click.option(
    "--gpus",
    metavar="NAMES",
    help="GPUs that the node gives to attempts, such as '0,1'; by default those of CUDA_VISIBLE_DEVICES, or all that "
    "'nvidia-smi -L' lists.",
)
@click.option(
    "--drain-seconds",
    type=Duration(max=86400),
    metavar="DURATION",
    help="How long the node may take to give its sessions to other nodes when it gets a signal; 0 cancels them. 30 by "
    "default, 0 for a node that another command has started.",
)
@suspect_option("A node that does not answer for this long is suspect.")
@lost_option("A node that does not answer for this long is lost.")
@discover_options(finds="")
def node_command(
    _: CommandOutput,
    *,
    options: ServeOptions,
    links_port: int,
    runner: str,
    workers: int | None,
    memory: int | None,
    gpus: str | None,
    drain_seconds: float | None,
    suspect_after: float,
    lost_after: float,
    discovery: DiscoverOptions,
) -> Exit:
    """Run the node manager of this host, until SIGINT or SIGTERM.

    It hosts sessions: worker processes run the applications, and events and data go directly to the other nodes. When
    it is ready, standard output gets one line, {"ready": true, "role": "node", "url": ..., "token": ...}.

    After a signal it gives its sessions to their other nodes, within --drain-seconds, and ends. Sessions that no other
    node can go on with are cancelled. Exit status 0 after a clean end; a second signal ends it immediately, with 128
    plus its number.
    """
    from dropflow.cli.servers.manager_service import announce_by_zeroconf, rest_service
    from dropflow.cli.servers.server_process import links_advertise, links_bind, serve
    from dropflow.host.gpus import claimed_gpus, restrict_gpus
    from dropflow.host.memory import restrict_memory
    from managers.node.manager import NodeManager

    if memory is not None:
        restrict_memory(memory)
    if gpus is not None:
        restrict_gpus(gpus)

    def build(context: "ServerContext") -> str:
        manager = NodeManager(
            context.name,
            root=context.root,
            links_bind=links_bind(context, links_port),
            links_advertise=links_advertise(context),
            key=context.key,
            runner=runner,
            workers=workers,
            suspect_after=suspect_after,
            lost_after=lost_after,
            on_drained=context.stop.set,
        )
        context.stack.callback(manager.close)
        service = rest_service(context, manager)
        manager.set_url(service.url)
        service.start()
        seconds = _drain_seconds(context.options, drain_seconds)
        context.stack.callback(lambda: manager.drain_before_end(0.0 if context.stop.has_lost_parent else seconds))
        announce_by_zeroconf(context, manager.info(), discovery)
        if shared := context.stack.enter_context(claimed_gpus()):
            _log.warning(
                "GPU %s: another node manager of this host gives it to attempts, too; start each of them with --gpus",
                ", ".join(shared),
            )
        return service.url

    return serve("node", options, build)


def _drain_seconds(options: ServeOptions, wanted: float | None) -> float:
    """Return how long a node may drain after a signal.

    What another process has started, as ``dropflow up`` does, ends together with all other nodes.
    """
    return wanted if wanted is not None else 0.0 if options.watch_parent is not None else _DRAIN_SECONDS


# ``dropflow island``: a data island manager, above nodes.


def composite_options(*, finds: str, daliuge: bool = True) -> Decorator:
    """Return a decorator that adds the options that islands and masters share: arguments of `serve_composite`."""
    return grouped(
        "composite",
        dict,
        click.option(
            "--links-port",
            type=click.IntRange(0, 65535),
            default=0,
            show_default="any that is free",
            help="Port at which nodes reach this manager when it votes about their losses.",
        ),
        suspect_option("A child that does not answer for this long is suspect."),
        lost_option("A child that does not answer for this long is lost."),
        discover_options(finds=finds, daliuge=daliuge),
        fields=("links_port", "suspect_after", "lost_after", "discovery"),
    )


@click.command("island")
@output_options
@serve_options(ISLAND_PORT)
@click.option(
    "--nodes", multiple=True, metavar="URL", help="A node of the island; several with commas, or repeat the option."
)
@composite_options(finds="nodes")
def island_command(
    _: CommandOutput, *, options: ServeOptions, nodes: tuple[str, ...], composite: dict[str, Any]
) -> Exit:
    """Run a data island manager over nodes, until SIGINT or SIGTERM.

    It deploys sessions on its nodes and merges their status. A running session does not need it, so it may be stopped
    and started again. Ready line and exit status are those of dropflow node.
    """
    from dropflow.cli.servers.manager_service import serve_composite

    return serve_composite("island", options, children=nodes, **composite)


# ``dropflow master``: a master manager, above islands.


@click.command("master")
@output_options
@serve_options(MASTER_PORT)
@click.option("--islands", multiple=True, metavar="URL", help="An island; several with commas, or repeat the option.")
@click.option("--nodes", multiple=True, metavar="URL", help="A node without an island; as --islands.")
@composite_options(finds="islands", daliuge=False)
def master_command(
    _: CommandOutput,
    *,
    options: ServeOptions,
    islands: tuple[str, ...],
    nodes: tuple[str, ...],
    composite: dict[str, Any],
) -> Exit:
    """Run a master manager over islands, until SIGINT or SIGTERM.

    It is to islands what an island is to nodes. Ready line and exit status are those of dropflow node.
    """
    from dropflow.cli.servers.manager_service import serve_composite

    return serve_composite("master", options, children=(*islands, *nodes), **composite)


# ``dropflow translator``: the translator service.


@click.command("translator")
@output_options
@serve_options(TRANSLATOR_PORT)
@click.option(
    "--to",
    "managers",
    multiple=True,
    metavar="URL",
    help="A manager to which graphs may be deployed from the pages; several with commas, or repeat the option.",
)
def translator_command(_: CommandOutput, *, options: ServeOptions, managers: tuple[str, ...]) -> Exit:
    """Run the translator service for EAGLE, until SIGINT or SIGTERM.

    It shows, translates and deploys graphs. Set EAGLE's translator address to URL/gen_pgt. Ready line and exit status
    are those of dropflow node.
    """
    from dropflow.api.serving import RestServer
    from dropflow.cli.servers.manager_service import neighbours, split_urls
    from dropflow.cli.servers.server_process import LOG_FILE, serve
    from dropflow.web.known_servers import KnownServers, ServerAddress
    from dropflow.web.tickets import request_ticket
    from managers.manager_server import make_access_rules, url_of
    from translator.web.routes import STREAMS, make_translator

    def build(context: "ServerContext") -> str:
        access = make_access_rules(
            options.host,
            token=context.token,
            secret=context.key.secret,
            users=context.users,
            hosts=(*options.allow_host, context.advertised_host),
            origins=options.allow_origin,
            public_url=options.public_url,
        )
        url, addresses = "", split_urls(managers)
        app, streams, service = make_translator(
            context.root / "translations",
            managers=addresses,
            access=access,
            secret=context.key.secret,
            name=context.name,
            url=lambda: url,
            log=context.root / LOG_FILE,
            servers=KnownServers(
                own=lambda: url,
                neighbours=partial(
                    neighbours, options, tuple(ServerAddress("master", each, each) for each in addresses)
                ),
                ticket=partial(request_ticket, secret=context.key.secret),
                public_url=options.public_url,
            ),
        )
        context.stack.callback(service.close)
        server = RestServer(
            app,
            streams=streams,
            stream_limit=STREAMS,
            host=options.host,
            port=options.port,
            open_to_all=context.token is None,
        )
        context.stack.callback(server.close)
        url = url_of(context.advertised_host, server.port)
        server.start()
        return url

    return serve("translator", options, build)


# ``dropflow daemon``: starts and stops the other managers of this host.


@click.command("daemon")
@output_options
@serve_options(DAEMON_PORT)
@click.option(
    "--start",
    multiple=True,
    type=click.Choice(["node", "island", "master"]),
    help="Start this manager immediately; may be repeated. Others are started by request.",
)
@discover_options(finds="", daliuge=False)
def daemon_command(
    _: CommandOutput, *, options: ServeOptions, start: tuple[_Role, ...], discovery: DiscoverOptions
) -> Exit:
    """Run the daemon of this host, which starts and stops its other managers, until SIGINT or SIGTERM.

    Its managers get its address, key and log options and the default ports (any free port if its own port is 0), and
    they end with it. Ready line and exit status are those of dropflow node.
    """
    from dropflow.cli.servers.manager_service import announce_by_zeroconf, rest_service
    from dropflow.cli.servers.server_process import serve
    from dropflow.web.sign_in import login_routes
    from managers.daemon import Daemon, daemon_routes

    def build(context: "ServerContext") -> str:
        manager = Daemon(context.name, options=_manager_options(context, discovery), key=context.key.fingerprint)
        context.stack.callback(manager.close)
        service = rest_service(context, lambda _, access: [*daemon_routes(manager), *login_routes(access)])
        manager.set_url(service.url)
        service.start()
        for role in start:
            if not context.stop.is_set():
                manager.start(role)
        announce_by_zeroconf(context, manager.info(), discovery)
        return service.url

    return serve("daemon", options, build)


def _manager_options(context: "ServerContext", discovery: DiscoverOptions) -> dict[_Role, list[str]]:
    """Return the options of the managers: those of the daemon, and a directory for each below that of the daemon."""
    options = context.options
    shared = ["--host", options.host, "--group", f"daemon-{os.getpid()}", "--log-level", options.log_level]
    shared += ["--advertise", options.advertise] if options.advertise else []
    shared += ["--key", str(Path(options.key).absolute())] if options.key else []
    shared += ["--no-auth"] if options.no_auth else []
    shared += ["--log-json"] if options.log_json else []
    shared += ["--discover"] if discovery.discover else []
    shared += ["--port", "0"] if options.port == 0 else []
    shared += [word for name in options.allow_host for word in ("--allow-host", name)]
    shared += [word for name in options.allow_origin for word in ("--allow-origin", name)]
    root = context.root
    return {
        "node": [*shared, "--root", str(root / "node"), *(["--links-port", "0"] if options.port == 0 else [])],
        "island": [*shared, "--root", str(root / "island")],
        "master": [*shared, "--root", str(root / "master")],
    }
