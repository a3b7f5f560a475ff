"""The options of the commands that ask a manager."""

import functools
from collections.abc import Callable
from typing import Any

import click

from dropflow.cli.exits import Exit

__all__ = ["asks", "patience_option"]

patience_option = click.option(
    "--patience",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    envvar="DROPFLOW_PATIENCE",
    show_envvar=True,
    help="How long to keep asking while the manager is away or does not know how the session is.",
)
"""For commands that follow a session."""


def asks(function: Callable[..., Exit]) -> Callable[..., Exit]:
    """Add the options that say whom to ask; the command gets them as one `connection.Target`."""

    @click.option(
        "--to",
        "url",
        metavar="URL",
        envvar="DROPFLOW_URL",
        show_envvar=True,
        help="The manager to ask; the one that runs on this host by default.",
    )
    @click.option(
        "--token",
        metavar="TOKEN",
        envvar="DROPFLOW_TOKEN",
        show_envvar=True,
        help="Its token, better given by the environment; found by itself on the manager's host, else the cluster key "
        "signs.",
    )
    @click.option("--key", metavar="FILE", help="The cluster key; in the user's configuration by default.")
    @functools.wraps(function)
    def command(*arguments: Any, url: str | None, token: str | None, key: str | None, **given: Any) -> Exit:
        from dropflow.cli.connection import Target

        return function(*arguments, target=Target(url=url, token=token, key=key), **given)

    return command
