"""The options of the commands that start a server process: node, island, master, daemon, translator."""

from math import inf
from urllib.parse import urlsplit

import click
import msgspec

from dropflow.cli.common_options import Decorator, Duration, grouped
from dropflow.formatting import MEMORY, quantity
from managers.membership import LOST_AFTER, SUSPECT_AFTER


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options that all server processes share; see their help."""

    host: str = "127.0.0.1"
    port: int = 0
    advertise: str = ""
    name: str = ""
    root: str | None = None
    key: str | None = None
    no_auth: bool = False
    token_file: str | None = None
    allow_host: tuple[str, ...] = ()
    allow_origin: tuple[str, ...] = ()
    public_url: str = ""
    translator: tuple[str, ...] = ()
    new_token: bool = False
    watch_parent: int | None = None
    group: str = ""
    log_level: str = "info"
    log_file: str | None = None
    log_json: bool = False


class DiscoverOptions(msgspec.Struct, frozen=True):
    """Whether a manager announces itself and finds others by zeroconf; whether also under DALiuGE's names."""

    discover: bool = False
    daliuge_names: bool = False


def suspect_option(text: str) -> Decorator:
    """Return the option for the time without an answer after which a peer is suspect; `text` is its help."""
    return _seconds_option("--suspect-after", text, least=0.1, default=SUSPECT_AFTER)


def lost_option(text: str) -> Decorator:
    """Return the option for the time without an answer after which a peer is lost; `text` is its help."""
    return _seconds_option("--lost-after", text, least=0.2, default=LOST_AFTER)


def _seconds_option(name: str, text: str, *, least: float, default: float) -> Decorator:
    kind = Duration(min=least)
    return click.option(name, type=kind, default=default, show_default=True, metavar="DURATION", help=text)


def log_level_option(text: str) -> Decorator:
    """Return the option for the least severe level that is logged; `text` is its help."""
    levels = click.Choice(["debug", "info", "warning", "error"])
    return click.option("--log-level", type=levels, default="info", show_default=True, help=text)


def memory_option(text: str) -> Decorator:
    """Return the option for the memory that nodes may use, in bytes, or None; `text` is its help."""

    def checked(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
        size = None if text is None else quantity(text, MEMORY)
        if text is not None and (size is None or not 1 <= size < inf):
            raise click.BadParameter(f"{text!r} is not a size; give a number with a unit, such as '2 GiB'")
        return None if size is None else int(size)

    return click.option("--memory", metavar="SIZE", callback=checked, help=text)


def public_url_option(*, of_many: bool = False) -> Decorator:
    """Return the option for the address at which browsers reach a server, or several, through a proxy."""

    def checked(_: click.Context, __: click.Parameter, text: str) -> str:
        if of_many and text and "{port}" not in text:
            raise click.BadParameter(f"{text!r} needs {{port}}, because each server has its own address")
        return _public_url(text)

    return click.option(
        "--public-url",
        default="",
        metavar="URL",
        callback=checked,
        help="Address at which browsers reach it through a proxy, which may have a path. {port} and {host} in it are "
        "those of each server of the cluster: https://example.org/user/me/proxy/{port}/",
    )


def _public_url(text: str) -> str:
    try:
        parts = urlsplit(text.replace("{port}", "1").replace("{host}", "host"))
        usable = not text or (
            parts.scheme in ("http", "https") and bool(parts.hostname) and "{" not in urlsplit(text).netloc
        )
        _ = parts.port
    except ValueError:
        usable = False
    # Addresses are in the Content-Security-Policy of pages, where these characters would end a rule.
    if not usable or parts.query or parts.fragment or not text.isascii() or any(sign in text for sign in " ;,'\"<>\\"):
        raise click.BadParameter(f"{text!r} is not an address such as https://example.org/proxy/{{port}}/")
    return text.rstrip("/")


_SHARED = (
    click.option(
        "--host",
        default="127.0.0.1",
        show_default=True,
        metavar="ADDRESS",
        help="Address to listen on. A cluster key is needed beyond loopback (dropflow keys).",
    ),
    click.option(
        "--advertise", default="", metavar="HOST", help="Name or address by which other hosts reach this one."
    ),
    click.option("--name", default="", metavar="NAME", help="Name of the manager; ROLE-HOSTNAME by default."),
    click.option("--root", metavar="DIR", help="Directory to work in; one per name in the user's state by default."),
    click.option(
        "--key", metavar="FILE", help="The cluster key; in the user's configuration by default, made when needed."
    ),
    click.option(
        "--no-auth", is_flag=True, help="Need no token: every user of this host has access. Only on loopback."
    ),
    click.option(
        "--token-file", metavar="FILE", help="Read the token from FILE (mode 0600); by default the one in --root."
    ),
    click.option("--new-token", is_flag=True, help="Make a new token, so that the old one is of no use any more."),
    click.option(
        "--translator", multiple=True, metavar="URL", help="A translator of this cluster, to which the pages link."
    ),
    click.option(
        "--allow-host",
        multiple=True,
        metavar="HOST",
        help="Accept requests with this host name, for example that of a proxy. Repeatable.",
    ),
    click.option(
        "--allow-origin", multiple=True, metavar="URL", help="Accept requests from pages of this site. Repeatable."
    ),
    public_url_option(),
    log_level_option("The least severe records that are logged."),
    click.option("--log-file", metavar="FILE", help="Log to FILE instead of standard error."),
    click.option("--log-json", is_flag=True, help="Log one JSON object a line."),
    click.option(
        "--watch-parent",
        type=int,
        metavar="FD",
        hidden=True,
        help="End when the pipe with this file descriptor is closed by the process that started this one.",
    ),
    click.option("--group", default="", hidden=True, help="Name of the managers that are started together."),
)


def serve_options(port: int) -> Decorator:
    """Return a decorator that adds the shared options, with this default port: one `ServeOptions`, called `options`."""
    ports = click.IntRange(0, 65535)
    text = "Port to listen on; 0 takes any that is free."
    return grouped(
        "options",
        ServeOptions,
        click.option("--port", type=ports, default=port, show_default=True, help=text),
        *_SHARED,
    )


def discover_options(*, finds: str, daliuge: bool = True) -> Decorator:
    """Return a decorator that adds the options about zeroconf: one `DiscoverOptions`, called `discovery`.

    Parameters
    ----------
    finds : str
        The managers that become children when they are found, if any.
    """
    adopts = f", and use the {finds} with the same key that are found" if finds else ""
    text, also = f"Announce it by zeroconf{adopts}.", "Announce it by zeroconf also under DALiuGE's name."
    options = [click.option("--discover/--no-discover", default=False, show_default=True, help=text)]
    if daliuge:
        options.append(click.option("--daliuge-names", is_flag=True, help=also))
    return grouped("discovery", DiscoverOptions, *options)
