"""``dropflow keys``: the cluster key, which all managers of a cluster share."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from dropflow.cli.common_options import output_options
from dropflow.cli.exit_status import Exit
from dropflow.cli.output import CommandOutput

if TYPE_CHECKING:
    from managers.keys import ClusterKey

_file_option = click.option(
    "--key", "file", metavar="FILE", help="The key file; in the user's configuration by default."
)


class KeyReply(msgspec.Struct, frozen=True, kw_only=True):
    """The file of a cluster key and the fingerprint of the key; never the key."""

    ok: bool = True
    key: str
    fingerprint: str
    made: bool

    def lines(self) -> Iterator[str]:
        """The fingerprint and the file."""
        yield f"cluster key {self.fingerprint}"
        yield f"  {'made' if self.made else 'in'} {self.key}"
        if self.made:
            yield "  copy this file to the same place on every host of the cluster, for example with scp -p"


@click.group("keys")
def keys_command() -> None:
    """The cluster key, which all managers of a cluster share.

    Make it once, and copy the file to the other hosts, for example with scp -p. Only its owner can read it (mode 0600),
    and no command prints the key.
    """


@keys_command.command("create")
@output_options
@_file_option
def create_key(output: CommandOutput, *, file: str | None) -> Exit:
    """Make a cluster key. An existing key is not overwritten."""
    from managers.keys import create

    return _answer_key(output, file, create, made=True)


@keys_command.command("show")
@output_options
@_file_option
def show_key(output: CommandOutput, *, file: str | None) -> Exit:
    """Show the fingerprint of the cluster key, to compare the keys of two hosts; never the key."""
    from managers.keys import load

    return _answer_key(output, file, load, made=False)


def _answer_key(output: CommandOutput, file: str | None, key_in: "Callable[[Path], ClusterKey]", *, made: bool) -> Exit:
    from dropflow.cli.manager_records import default_key

    path = Path(file) if file else default_key()
    output.answer(KeyReply(key=str(path), fingerprint=key_in(path).fingerprint, made=made))
    return Exit.FINISHED
