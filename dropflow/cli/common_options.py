"""Options that several commands have, and the types of their values.

`output_options` is the frame around every command: it gives it an output, prints its errors and sets its exit status.
"""

import functools
import inspect
import math
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin

import click
import msgspec
from click.core import ParameterSource

from dropflow.api.patience import PATIENCE
from dropflow.cli.candidates import algorithms, graphs, runners, sessions, settings
from dropflow.cli.exit_status import Exit
from dropflow.cli.output import error_reply, exit_for_error, output_for
from dropflow.errors import BadFileError, BadParameterError, StorageError
from dropflow.session_options import AnnotatedField, meta_of
from dropflow.stopping import GRACE_SECONDS
from dropflow.submission.options import ConnectionOptions

Options = TypeVar("Options", bound=msgspec.Struct)
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_FORM = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
session_argument = click.argument("session", metavar="SESSION", shell_complete=sessions)
graph_argument = click.argument("graph", metavar="GRAPH", shell_complete=graphs)
GraphFormat = Literal["dfg", "json", "dot", "graphml", "csv"]
prefix_option = click.option(
    "--prefix", default="", metavar="TEXT", help="First part of the drops' ids; the name of the graph by default."
)
target_option = click.option(
    "-o",
    "target",
    metavar="FILE",
    help="Write the graph to FILE; - is standard output. The suffix gives the format: .dfg, .json, .pg, .pgt, .dot, "
    ".graphml, or .csv: the drops, and their edges in FILE.edges.csv.",
)
form_option = click.option(
    "--format",
    "form",
    type=click.Choice(list(get_args(GraphFormat))),
    help="Format of the graph: .dfg, DALiuGE's JSON, or one that only other programs read: DOT, GraphML, CSV.",
)
fuse_option = click.option(
    "--no-fuse",
    is_flag=True,
    help="Give every application to a worker by itself; by default, chains without branches run as one unit.",
)
_TIME_OF_DAY = re.compile(r"(\d{1,2}):(\d{2})")
_LARGEST_FACTOR = 1000.0
"""Factor above which an option refuses it as a mistake."""


def given_on_command_line(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return those parameters of the current command that are on the command line."""
    source = click.get_current_context().get_parameter_source
    return tuple(name for name in names if source(name) is ParameterSource.COMMANDLINE)


def output_options(function: Callable[..., Exit]) -> Callable[..., None]:
    """Make `function` a command with ``--output`` and ``--debug`` that never prints a traceback by itself.

    The function gets the `CommandOutput` as its first argument and returns the exit status. An exception becomes an
    `ErrorReply` in the same form as the answer.
    """

    @click.option(
        "--output",
        "kind",
        type=click.Choice(["table", "json", "quiet"]),
        default="table",
        envvar="DROPFLOW_OUTPUT",
        show_default=True,
        show_envvar=True,
        help="Form of the answer on standard output.",
    )
    @click.option("--debug", is_flag=True, help="Show the traceback of an internal error.")
    @functools.wraps(function)
    def command(*, kind: str, debug: bool, **options: Any) -> None:
        output = output_for(kind)
        try:
            status = function(output, **options)
            sys.stdout.flush()
        except (click.ClickException, click.exceptions.Exit):
            raise
        except BrokenPipeError:
            # The process that reads the output has ended, as in `dropflow info g.dfg | head`.
            _discard_output()
            status = Exit.BROKEN_PIPE
        except Exception as caught:  # noqa: BLE001  (every error is printed in the form of the output)
            error = _error_of_output(caught)
            output.error(error_reply(error, debug=debug))
            status = exit_for_error(error)
        sys.exit(status)

    return command


def _error_of_output(error: Exception) -> Exception:
    """Return `error`, or one that names standard output if that is what could not be written."""
    try:
        sys.stdout.flush()
    except OSError as failed:
        unwritten = error_of_unwritten(failed)
        if isinstance(error, OSError) and error.errno == failed.errno:
            return unwritten
    return error


def error_of_unwritten(error: OSError) -> StorageError:
    """Return the error of standard output that cannot be written, and discard what is left of it."""
    _discard_output()
    return StorageError(
        f"standard output cannot be written: {error.strerror}", hint="make room, or write to another file"
    )


def _discard_output() -> None:
    """Discard what standard output still holds: Python flushes it at exit, which must not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def grouped(name: str, make: Callable[..., Any], *options: Decorator, fields: Collection[str] = ()) -> Decorator:
    """Return a decorator that adds options to a command, which gets what `make` makes of them as its argument `name`.

    Parameters
    ----------
    fields : collection of str
        The arguments of `make`, if its signature does not tell them.
    """
    names = fields or tuple(inspect.signature(make).parameters)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def command(*arguments: Any, **given: Any) -> Any:
            made = make(**{option: given.pop(option) for option in names if option in given})
            return function(*arguments, **{name: made}, **given)

        return with_options(*options)(command)

    return decorate


def with_options(*options: Decorator) -> Decorator:
    """Return a decorator that adds options to a command, which gets each as an argument."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def _manager(url: str | None, token: str | None, key: str | None) -> ConnectionOptions:
    manager = ConnectionOptions(url=url, token=token, key=key)
    if url is not None and url.startswith("ssh://"):
        from dropflow.cli.jobs.login import LoginTunnel

        tunnel = LoginTunnel(url)
        click.get_current_context().call_on_close(tunnel.close)
        manager = tunnel.open(manager)
    elif url is not None and url.startswith(("slurm:", "pbs:", "sge:", "ssh:")):
        from dropflow.cli.jobs.login import manager_of_job

        manager = manager_of_job(manager)
    return manager


connection_options = grouped(
    "manager",
    _manager,
    click.option(
        "--to",
        "url",
        metavar="URL",
        envvar="DROPFLOW_URL",
        show_envvar=True,
        help="The manager, or the job of 'dropflow launch' that has it, such as slurm:123; both also through ssh: "
        "ssh://LOGIN/slurm:123. By default the one that runs on this host.",
    ),
    click.option(
        "--token",
        metavar="TOKEN",
        envvar="DROPFLOW_TOKEN",
        show_envvar=True,
        help="Its token, which other users see unless it is in the environment. By default it is read on the manager's "
        "host, and elsewhere the cluster key signs requests.",
    ),
    click.option(
        "--key",
        metavar="FILE",
        envvar="DROPFLOW_KEY",
        show_envvar=True,
        help="The cluster key, or the key of a user; in the user's configuration by default.",
    ),
)
"""Adds the options that name a manager; the command gets them as one `ConnectionOptions`, called `manager`."""


class FloatRange(click.FloatRange):
    """A range of numbers. NaN, which compares with no bound, is in none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number that a text stands for."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


# Durations as options: a number with a unit, such as ``90s``, ``10m``, ``2h`` or ``1d``.


def parse_duration(text: str) -> float | None:
    """Return a duration in seconds; None if the text is none.

    Examples
    --------
    >>> parse_duration("10m"), parse_duration("1.5h"), parse_duration("10")
    (600.0, 5400.0, None)
    """
    match = _FORM.fullmatch(text)
    return float(match[1]) * _UNITS[match[2]] if match else None


class Duration(click.ParamType[float]):
    """Type of an option: seconds, or a number with a unit, in the bounds of a `FloatRange`; by default from 0."""

    name = "duration"

    def __init__(self, **bounds: Any) -> None:
        self._range = FloatRange(**{"min": 0, **bounds})

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the duration in seconds."""
        seconds = parse_duration(str(value))
        if seconds is None:
            with suppress(ValueError):
                seconds = float(str(value))
        if seconds is None or not math.isfinite(seconds):
            text = f"{value!r} is not a duration; give seconds, or a number with a unit, such as 90s, 10m, 2h or 1d"
            self.fail(text, param, ctx)
        return self._range.convert(seconds, param, ctx)


patience_option = click.option(
    "--patience",
    type=Duration(),
    default=PATIENCE,
    show_default=True,
    metavar="DURATION",
    envvar="DROPFLOW_PATIENCE",
    show_envvar=True,
    help="How long to keep asking while the manager is away or the state of the session is unknown.",
)


def _with_params(settings: tuple[str, ...], params: str | None) -> tuple[str, ...]:
    if params is None:
        return settings
    from dropflow.graph.notes import with_more_settings

    return with_more_settings(_read_params(params), settings)


def utf8(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values of an option, which go into a graph; refuse bytes that are not text in UTF-8."""
    for value in values:
        try:
            value.encode()
        except UnicodeEncodeError:
            raise click.BadParameter(f"{value!a} is not text in UTF-8", context, parameter) from None
    return values


setting_options = grouped(
    "settings",
    _with_params,
    click.option(
        "--set",
        "settings",
        multiple=True,
        callback=utf8,
        metavar="[NODE.]PARAM=VALUE",
        shell_complete=settings,
        help="Set a parameter of the graph, or of a node (by name or id). May be repeated.",
    ),
    click.option("--params", metavar="FILE", help="Values in a file: TOML or JSON. --set has priority."),
    click.option(
        "--config", "configuration", metavar="NAME", help="Use the graph's configuration with this name or id."
    ),
)
"""Adds the options that give values to the parameters of a logical graph.

The command gets the name of a `configuration`, and all values as `settings`, of texts NAME=VALUE.
"""


def _read_params(file: str) -> tuple[str, ...]:
    """Return the values in a TOML or JSON file as settings; names in tables are joined by dots."""
    import json
    import tomllib

    path = Path(file)
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix.lower() == ".json":
            document = json.loads(text, parse_float=_finite, parse_constant=_finite)
        else:
            document = tomllib.loads(text, parse_float=_finite)
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        hint = "name a file with TOML such as n = 4, or with JSON and the suffix .json"
        raise BadFileError(f"the file of --params cannot be read: {reason}", where=file, hint=hint) from error
    if not isinstance(document, dict):
        raise BadFileError(
            "the parameters of --params are not an object", where=file, hint='write for example {"n": 4}'
        )
    return tuple(_flat(document, ""))


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a finite number")
    return number


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}={value if isinstance(value, str) else msgspec.json.encode(value).decode()}"


def _runner(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """Refuse a runner that there is not, before any file is read."""
    del context, parameter
    from dropflow.runners.runner_choice import parse_runner

    try:
        parse_runner(value)
    except BadParameterError as error:
        raise click.BadParameter(f"{error.text} ({error.hint})") from error
    return value


hosts_options = with_options(
    click.option("--skip-unreachable", is_flag=True, help="Leave out hosts to which ssh cannot connect, with a note."),
    click.option(
        "--install", is_flag=True, help="Install this dropflow on the hosts, with uv or pip, unless it is there."
    ),
    click.option(
        "--tunnel", is_flag=True, help="Connect all managers through ssh and this host, for hosts that let nothing in."
    ),
)
"""Adds the options for a file of hosts."""


grace_option = click.option(
    "--grace",
    type=Duration(max=3600),
    default=GRACE_SECONDS,
    show_default=True,
    metavar="DURATION",
    help="How long running applications have to clean up before they are killed.",
)


# The option ``--until``: a time of day, a duration from now on, or a date and time.


def parse_walltime(text: str, now: datetime) -> float:
    """Return a walltime in seconds since the epoch.

    Parameters
    ----------
    text : str
        ``HH:MM`` (the next one), a duration such as ``3600s``, ``90m``, ``2h``, ``1d``, or a date and time in the form
        of ISO 8601, in local time unless it has a zone.
    now : datetime
        The local time now, without a zone: its offset may be another one at the walltime.

    Raises
    ------
    ValueError
        It has none of these forms, or has passed.
    """
    seconds = parse_duration(text)
    if seconds is not None:
        return now.timestamp() + seconds
    match = _TIME_OF_DAY.fullmatch(text)
    if match:
        wanted = now.replace(hour=int(match[1]), minute=int(match[2]), second=0, microsecond=0)
        return (wanted if wanted > now else wanted + timedelta(days=1)).timestamp()
    moment = datetime.fromisoformat(text).timestamp()
    if moment <= now.timestamp():
        raise ValueError("it has passed")
    return moment


class _Walltime(click.ParamType[float]):
    name = "walltime"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the walltime in seconds since the epoch."""
        if isinstance(value, float):
            return value
        try:
            return parse_walltime(str(value), datetime.now())  # noqa: DTZ005 - local, with the rules of its zone
        except ValueError as error:
            hint = (
                "give a time such as 02:30, a duration such as 3600s or 2h, or a date and time such as 2027-01-31T02:30"
            )
            self.fail(f"{value!r} is not a walltime: {error}; {hint}", param, ctx)


class _Share(click.ParamType[float]):
    name = "share"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the share, from 0 to 1."""
        text = str(value)
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            share = -1.0
        if not 0.0 <= share <= 1.0:
            self.fail(f"{value!r} is not a share; give a percentage such as 5%, or a number from 0 to 1", param, ctx)
        return share


class _Factor(click.ParamType[float]):
    name = "factor"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the factor, more than 1; or 0, the default."""
        try:
            factor = float(str(value).removesuffix("x"))
        except ValueError:
            factor = -1.0
        if factor and not 1.0 < factor <= _LARGEST_FACTOR:
            self.fail(f"{value!r} is not a factor; give a number above 1, such as 2x", param, ctx)
        return factor


_TYPES: dict[str, dict[str, Any]] = {
    "place": {"metavar": "PLACE", "type": click.STRING},
    "share": {"metavar": "SHARE", "type": _Share()},
    "factor": {"metavar": "FACTOR", "type": _Factor()},
    "walltime": {"type": _Walltime(), "metavar": "WALLTIME"},
    "duration": {"metavar": "DURATION"},
    "algorithm": {"shell_complete": algorithms, "show_default": True},
    "runner": {"metavar": "RUNNER", "callback": _runner, "shell_complete": runners, "show_default": True},
}
"""Arguments of click for options whose values are not plain numbers, by type."""


class GivenOptions(msgspec.Struct, Generic[Options], frozen=True, kw_only=True):
    """The options of a command line, and the names of those that are on it."""

    options: Options
    given: tuple[str, ...]

    def over(self, known: Options) -> Options:
        """Return known options with those that are on the command line."""
        return msgspec.structs.replace(known, **{name: getattr(self.options, name) for name in self.given})


def options_of(record: type[Options], *, without: Collection[str] = ()) -> Decorator:
    """Return a decorator that adds a flag for each option of a record, as its fields are annotated.

    The command gets them as one `GivenOptions`, called `options`.
    """
    fields = {name: meta for name, meta in meta_of(record).items() if name not in without}

    def made(**given: Any) -> GivenOptions[Options]:
        return GivenOptions(options=record(**given), given=given_on_command_line(tuple(fields)))

    return grouped("options", made, *(_flag(name, field) for name, field in fields.items()), fields=fields)


def _flag(name: str, field: AnnotatedField) -> Decorator:
    """Return the option of a command for one field of a record."""
    more: dict[str, Any] = {"help": field.meta.description, "default": field.default, **_TYPES.get(field.special, {})}
    extra = field.meta.extra or {}
    if "metavar" in extra:
        more["metavar"] = extra["metavar"]
    if field.kind is bool:
        more["is_flag"] = True
    elif get_origin(field.kind) is Literal:
        more |= {"type": click.Choice(get_args(field.kind)), "show_default": bool(field.default)}
    elif field.special in ("", "duration"):
        above = field.meta.gt
        bounds: dict[str, Any] = {"min": field.meta.ge if above is None else above, "max": field.meta.le}
        if field.kind in (float, float | None):
            kind = Duration if field.special else FloatRange
            more["type"] = kind(**bounds, min_open=above is not None)
        else:
            more["type"] = click.IntRange(**bounds)
        more["show_default"] = not field.special and field.default is not None
    return click.option(*extra["flag"].split(), name, **more)
