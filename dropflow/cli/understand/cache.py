"""``dropflow cache``: the result store."""

from collections.abc import Callable, Iterator
from math import inf
from typing import TYPE_CHECKING

import click
import msgspec

from dropflow.cli.common_options import output_options
from dropflow.cli.exit_status import Exit
from dropflow.cli.output import CommandOutput
from dropflow.errors import UsageError
from dropflow.formatting import MEMORY, format_size, plural, quantity

if TYPE_CHECKING:
    from dropflow.reuse.result_store import ResultStore, StoreUse


_store_option = click.option(
    "--store",
    default="",
    metavar="PLACE",
    help="Where the result store is, a directory or address; by default that of DROPFLOW_STORE, or ~/.cache/dropflow.",
)


class CacheReply(msgspec.Struct, frozen=True, kw_only=True):
    """A result store, and what a command has removed from it. Sizes are in bytes."""

    ok: bool = True
    store: str
    use: "StoreUse"

    def lines(self) -> Iterator[str]:
        """Yield how much was removed, damaged contents, and the size of the result store."""
        use = self.use
        if use.removed_contents or use.removed_records:
            removed = f"{plural(use.removed_contents, 'content')} and {plural(use.removed_records, 'record')}"
            yield f"removed {removed}, {format_size(use.removed_size)}"
        yield from (f"  damaged: {digest}" for digest in use.damaged)
        there = f"{plural(use.records, 'record')} of results, {plural(use.contents, 'content')}"
        yield f"{self.store}: {there}, {format_size(use.size)}"


@click.group("cache")
def cache_command() -> None:
    """The result store, which 'dropflow run --reuse' takes from and adds to.

    It is in ~/.cache/dropflow, or where DROPFLOW_STORE or --store say. After a run, the results that were not used for
    longest are removed above 20 GiB, or the size in DROPFLOW_STORE_LIMIT. A node has the result store of its user.
    """


@cache_command.command("info")
@output_options
@_store_option
def show_cache(output: CommandOutput, *, store: str) -> Exit:
    """Show how many results are in the result store, and their size."""
    return _answer_cache(output, store, lambda cached: cached.use())


@cache_command.command("verify")
@output_options
@_store_option
def verify_cache(output: CommandOutput, *, store: str) -> Exit:
    """Read all contents, and remove those that are damaged. They are computed again when they are needed."""
    return _answer_cache(output, store, lambda cached: cached.verify())


@cache_command.command("prune")
@output_options
@_store_option
@click.option(
    "--limit", default="0", show_default=True, metavar="SIZE", help="Size of what is left at most, such as 5 GiB."
)
def prune_cache(output: CommandOutput, *, store: str, limit: str) -> Exit:
    """Remove results, those that were not used for longest first, until the result store has the size of --limit."""
    size = quantity(limit, MEMORY)
    if size is None or not 0 <= size < inf:
        raise UsageError(f"{limit!r} is not a size", where="--limit", hint="give a number of bytes, or such as 5 GiB")
    return _answer_cache(output, store, lambda cached: cached.prune(int(size)))


def _answer_cache(output: CommandOutput, store: str, work: "Callable[[ResultStore], StoreUse]") -> Exit:
    from dropflow.reuse.result_store import ResultStore, store_place

    cached = ResultStore(store_place(store))
    output.answer(CacheReply(store=cached.where, use=work(cached)))
    return Exit.FINISHED
