"""``dropflow daemon``: starts and stops the other managers of this host."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from dropflow.cli.exit_status import Exit
from dropflow.cli.options import output_options
from dropflow.cli.output import CommandOutput
from dropflow.cli.server_options import DiscoverOptions, ServeOptions, discover_options, serve_options

if TYPE_CHECKING:
    from dropflow.cli.server_process import ServerContext

__all__ = ["command"]

_Role = Literal["node", "island", "master"]


@click.command("daemon")
@output_options
@serve_options(9000)
@click.option(
    "--start",
    multiple=True,
    type=click.Choice(["node", "island", "master"]),
    help="Start this manager immediately; may be repeated. Others are started by request.",
)
@discover_options(finds="", daliuge=False)
def command(_: CommandOutput, *, options: ServeOptions, start: tuple[_Role, ...], discovery: DiscoverOptions) -> Exit:
    """Run the daemon of this host, which starts and stops its other managers, until SIGINT or SIGTERM.

    Its managers get its address, key and log options and the default ports (any free port if its own port is 0), and
    they end with it. Ready line and exit status are those of dropflow node.
    """
    from dropflow.cli.manager_service import announce_by_zeroconf, rest_service
    from dropflow.cli.server_process import serve
    from dropflow.rest.pages.login import login_routes
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
