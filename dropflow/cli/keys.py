"""``dropflow keys``: the cluster key, which all managers of a cluster share, and the keys of users."""

from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from dropflow.cli.common_options import output_options
from dropflow.cli.exit_status import Exit
from dropflow.cli.output import CommandOutput
from dropflow.formatting import plural

_file_option = click.option(
    "--key",
    "file",
    metavar="FILE",
    envvar="DROPFLOW_KEY",
    show_envvar=True,
    help="The key file; in the user's configuration by default.",
)


class KeyReply(msgspec.Struct, frozen=True, kw_only=True):
    """The file of a key and the fingerprint of the key; never the key.

    Attributes
    ----------
    user : str or None
        Owner of the key; None for the cluster key.
    revoked : dict
        Until when keys of users that were made are revoked, in seconds since 1970; for the cluster key.
    """

    ok: bool = True
    key: str
    fingerprint: str
    made: bool
    user: str | None = None
    revoked: dict[str, int] = {}

    def lines(self) -> Iterator[str]:
        """Yield the fingerprint and the file."""
        yield f"key of user {self.user} {self.fingerprint}" if self.user else f"cluster key {self.fingerprint}"
        yield f"  {'made' if self.made else 'in'} {self.key}"
        if self.made and self.user:
            yield f"  give this file to {self.user} only, who names it with --key or DROPFLOW_KEY"
        elif self.made:
            yield "  copy this file to the same place on every host of the cluster, for example with scp -p"
        if self.revoked:
            yield f"  revoked users: {', '.join(sorted(self.revoked))}"


class RevokedReply(msgspec.Struct, frozen=True, kw_only=True):
    """A user whose keys were revoked, and the file with the revoked users."""

    ok: bool = True
    user: str
    file: str

    def lines(self) -> Iterator[str]:
        """Yield which keys are revoked, and what the user has to do."""
        yield f"all keys of user {self.user} that were made until now are revoked in {self.file}"
        yield "  copy this file to the same place on every host with a manager: each reads it at the next request"


class CrateCheckReply(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a signed crate is as it was."""

    ok: bool
    crate: str
    key: str
    signed: str
    files: int
    differences: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """Yield when the crate was signed, and what differs."""
        yield f"{self.crate}: signed {self.signed} with cluster key {self.key}, {plural(self.files, 'file')}"
        yield from (f"  {difference}" for difference in self.differences)
        if not self.differences:
            yield "  all are as they were"


@click.group("keys")
def keys_command() -> None:
    """The cluster key, which all managers of a cluster share, and the keys of users.

    Make the cluster key once, and copy the file to the other hosts, for example with scp -p. Only its owner can read it
    (mode 0600), and no command prints a key.
    """


@keys_command.command("create")
@output_options
@_file_option
def create_key(output: CommandOutput, *, file: str | None) -> Exit:
    """Make a cluster key. An existing key is not overwritten."""
    from managers.keys import create

    path = _path(file)
    output.answer(KeyReply(key=str(path), fingerprint=create(path).fingerprint, made=True))
    return Exit.FINISHED


@keys_command.command("show")
@output_options
@_file_option
def show_key(output: CommandOutput, *, file: str | None) -> Exit:
    """Show the fingerprint of a key, to compare the keys of two hosts, and the revoked users; never the key."""
    from dropflow.api.signing import UserKey, read_revoked
    from managers.keys import UserFiles, fingerprint, load_any

    path = _path(file)
    key = load_any(path)
    if isinstance(key, UserKey):
        output.answer(KeyReply(key=str(path), fingerprint=fingerprint(key), made=False, user=key.name))
    else:
        revoked = read_revoked(UserFiles.beside(path).revoked)
        output.answer(KeyReply(key=str(path), fingerprint=key.fingerprint, made=False, revoked=revoked))
    return Exit.FINISHED


@keys_command.command("user")
@output_options
@_file_option
@click.option("--save", metavar="FILE", help="Where to store it; NAME.key in the current directory by default.")
@click.argument("name")
def make_user_key(output: CommandOutput, *, file: str | None, save: str | None, name: str) -> Exit:
    """Make a key for a user, from the cluster key. All managers of the cluster accept it at once.

    With it, the user submits sessions and looks at all, but adds and removes no nodes. The log of a manager names the
    user who asked for a change.
    """
    from dropflow.api.signing import read_revoked
    from dropflow.clock import SystemClock
    from managers.keys import UserFiles, create_user, fingerprint, load

    path = _path(file)
    cluster = load(path)
    # A key that is made in the second of the revocation of the former one would be revoked, too.
    made = max(int(SystemClock().now()), read_revoked(UserFiles.beside(path).revoked).get(name, 0) + 1)
    target = Path(save or f"{name}.key").absolute()
    key = create_user(target, cluster, name, made)
    output.answer(KeyReply(key=str(target), fingerprint=fingerprint(key), made=True, user=name))
    return Exit.FINISHED


@keys_command.command("revoke")
@output_options
@_file_option
@click.argument("name")
def revoke_user(output: CommandOutput, *, file: str | None, name: str) -> Exit:
    """Revoke all keys of a user that were made until now; one that is made later is valid.

    The managers of this host refuse them from the next request on. Copy the file to the other hosts.
    """
    from dropflow.clock import SystemClock
    from managers.keys import UserFiles, load, revoke

    path = _path(file)
    load(path)
    revoked = UserFiles.beside(path).revoked
    revoke(revoked, name, int(SystemClock().now()))
    output.answer(RevokedReply(user=name, file=str(revoked)))
    return Exit.FINISHED


@keys_command.command("verify")
@output_options
@_file_option
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False))
def verify_crate(output: CommandOutput, *, file: str | None, directory: str) -> Exit:
    """Check the crate in DIR, which 'dropflow explain RUN --crate DIR --sign' has signed.

    Exit status 1 if a file is not there, was changed or was added; 2 if the signature itself does not match, or is of
    another cluster key.
    """
    from dropflow.cli.understand.crate import check_crate
    from managers.keys import load

    key = load(_path(file))
    signature, differences = check_crate(Path(directory), key.secret, key.fingerprint)
    output.answer(
        CrateCheckReply(
            ok=not differences,
            crate=directory,
            key=signature.key,
            signed=signature.signed,
            files=len(signature.files),
            differences=tuple(differences),
        )
    )
    return Exit.FAILED if differences else Exit.FINISHED


def _path(file: str | None) -> Path:
    from dropflow.api.signing import default_key_file

    return Path(file) if file else default_key_file()
