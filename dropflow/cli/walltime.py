"""The option ``--until``: a time of day, a duration from now on, or a date and time."""

import re
from datetime import datetime, timedelta

import click

from dropflow.cli.duration import parse_duration

__all__ = ["parse_walltime", "until_option"]

_TIME_OF_DAY = re.compile(r"(\d{1,2}):(\d{2})")


def parse_walltime(text: str, now: datetime) -> float:
    """Return a walltime in seconds since the epoch.

    Parameters
    ----------
    text : str
        ``HH:MM`` (the next one), a duration such as ``3600s``, ``90m``, ``2h``, ``1d``, or a date and time in the form
        of ISO 8601, in local time unless it has a zone.
    now : datetime
        The time now, with a zone.

    Raises
    ------
    ValueError
        It has none of these forms, or has passed.
    """
    seconds = parse_duration(text)
    if seconds is not None:
        return now.timestamp() + seconds
    found = _TIME_OF_DAY.fullmatch(text)
    if found:
        wanted = now.replace(hour=int(found[1]), minute=int(found[2]), second=0, microsecond=0)
        return (wanted if wanted > now else wanted + timedelta(days=1)).timestamp()
    moment = datetime.fromisoformat(text)
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=now.tzinfo)
    if moment <= now:
        raise ValueError("it has passed")
    return moment.timestamp()


class _Walltime(click.ParamType[float]):
    name = "walltime"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the walltime in seconds since the epoch."""
        if isinstance(value, float):
            return value
        try:
            return parse_walltime(str(value), datetime.now().astimezone())
        except ValueError as error:
            hint = (
                "give a time such as 02:30, a duration such as 3600s or 2h, or a date and time such as 2027-01-31T02:30"
            )
            self.fail(f"{value!r} is not a walltime: {error}; {hint}", param, ctx)


until_option = click.option(
    "--until",
    type=_Walltime(),
    default=0.0,
    show_default=False,
    metavar="WALLTIME",
    help="Start nothing that cannot end by then, by the execution_time of its node: 02:30, 3600s, 2h, or an ISO time.",
)
