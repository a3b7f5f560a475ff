"""``dropflow translator``: the translator service."""

from functools import partial
from typing import TYPE_CHECKING

import click

from dropflow.cli.exit_status import Exit
from dropflow.cli.options import output_options
from dropflow.cli.output import CommandOutput
from dropflow.cli.server_options import ServeOptions, serve_options

if TYPE_CHECKING:
    from dropflow.cli.server_process import ServerContext

__all__ = ["command"]


@click.command("translator")
@output_options
@serve_options(8084)
@click.option(
    "--to",
    "managers",
    multiple=True,
    metavar="URL",
    help="A manager to which graphs may be deployed from the pages; several with commas, or repeat the option.",
)
def command(_: CommandOutput, *, options: ServeOptions, managers: tuple[str, ...]) -> Exit:
    """Run the translator service for EAGLE, until SIGINT or SIGTERM.

    It shows, translates and deploys graphs. Set EAGLE's translator address to URL/gen_pgt. Ready line and exit status
    are those of dropflow node.
    """
    from dropflow.cli.log_setup import LOG_FILE
    from dropflow.cli.manager_service import neighbours, split_urls
    from dropflow.cli.server_process import serve
    from dropflow.rest.pages.places import Places, ServerAddress
    from dropflow.rest.pages.tickets import request_ticket
    from dropflow.rest.server.rest_server import RestServer
    from managers.service import make_access_rules, url_of
    from translator.web.application import STREAMS, make_translator

    def build(context: "ServerContext") -> str:
        access = make_access_rules(
            options.host,
            token=context.token,
            secret=context.key.secret,
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
            places=Places(
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
