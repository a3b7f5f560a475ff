"""``dropflow keys``: the key that makes hosts a cluster."""

from typing import TYPE_CHECKING

import click

from dropflow.cli.exits import Exit
from dropflow.cli.options import speaks

if TYPE_CHECKING:
    from dropflow.cli.output import Output

__all__ = ["keys"]

_file_option = click.option(
    "--key", "file", metavar="FILE", help="The key file; in the user's configuration by default."
)


@click.group("keys")
def keys() -> None:
    """The cluster key: whoever has it belongs to the cluster.

    Make it once, and copy the file to the other hosts by what you trust already (scp, say). It stays the owner's: mode
    0600, and no command prints its secret.
    """


@keys.command("create")
@speaks
@_file_option
def create_key(output: "Output", *, file: str | None) -> Exit:
    """Make a cluster key; one that is there already is never overwritten."""
    from pathlib import Path

    from dropflow.cli.manager_replies import KeyReply
    from dropflow.cli.paths import default_key
    from managers.keys import create

    path = Path(file) if file else default_key()
    output.answer(KeyReply(key=str(path), fingerprint=create(path).fingerprint, made=True))
    return Exit.FINISHED


@keys.command("show")
@speaks
@_file_option
def show_key(output: "Output", *, file: str | None) -> Exit:
    """Show the fingerprint of the cluster key, by which two hosts can be compared; never the key."""
    from pathlib import Path

    from dropflow.cli.manager_replies import KeyReply
    from dropflow.cli.paths import default_key
    from managers.keys import load

    path = Path(file) if file else default_key()
    output.answer(KeyReply(key=str(path), fingerprint=load(path).fingerprint, made=False))
    return Exit.FINISHED
