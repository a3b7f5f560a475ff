"""The options of a submission, which ``submit`` and ``clone`` share: how a session runs."""

import functools
from collections.abc import Callable
from typing import Any

import click
import msgspec

from dropflow.cli.duration import Duration
from dropflow.cli.options import given_on_command_line, infrastructure_retries_option
from dropflow.cli.walltime import until_option
from dropflow.rest.submit_options import SubmitOptions

__all__ = ["GivenOptions", "submission_options"]


class GivenOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a command line, and the names of those that are on it."""

    options: SubmitOptions
    given: tuple[str, ...]

    def over(self, known: SubmitOptions) -> SubmitOptions:
        """Return known options with those that are on the command line."""
        return msgspec.structs.replace(known, **{name: getattr(self.options, name) for name in self.given})


def submission_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a submission; the command gets them as one `GivenOptions`, called `submission`."""

    @click.option(
        "--join/--no-join",
        default=True,
        help="Whether nodes that come while it runs are added, and it is rebalanced; by default they are.",
    )
    @click.option(
        "--fuse/--no-fuse",
        default=True,
        help="Whether chains of applications without branches run as one unit; by default they do.",
    )
    @until_option
    @infrastructure_retries_option
    @click.option(
        "--replicas",
        type=click.IntRange(min=1, max=100),
        default=1,
        show_default=True,
        metavar="N",
        help="Have results on N nodes before the session ends, so that the loss of a node does not lose them. A field "
        "'replicas' of a data node says it for that node.",
    )
    @click.option(
        "--protect",
        type=Duration(),
        default=0.0,
        show_default=False,
        metavar="DURATION",
        help="Have contents on two nodes that took longer than this to compute: 90s, 10m, 2h.",
    )
    @click.option(
        "--check/--no-check", default=False, help="Make the nodes check all their state after every step; slow."
    )
    @functools.wraps(function)
    def command(
        *arguments: Any,
        join: bool,
        fuse: bool,
        until: float,
        infrastructure_retries: int,
        replicas: int,
        protect: float,
        check: bool,
        **others: Any,
    ) -> Any:
        options = SubmitOptions(
            join=join,
            fuse=fuse,
            until=until,
            infrastructure_retries=infrastructure_retries,
            replicas=replicas,
            protect=protect,
            check=check,
        )
        given = given_on_command_line(SubmitOptions.__struct_fields__)
        return function(*arguments, submission=GivenOptions(options=options, given=given), **others)

    return command
