"""``dropflow service``: managers as services of systemd."""

import os
import pwd
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from dropflow.cli.common_options import output_options
from dropflow.cli.exit_status import Exit
from dropflow.cli.main import load_command
from dropflow.cli.output import CommandOutput
from dropflow.errors import ConflictError, StorageError, UsageError
from dropflow.files import replace_file

_SYSTEM = Path("/etc/systemd/system")
_MARK = (
    "# Written by 'dropflow service install'; change it by 'systemctl edit', and it stays when this is written again."
)
_STOP_SECONDS = 30
"""Seconds that a manager may take to end besides draining."""

_BASIC = (
    "NoNewPrivileges=yes",
    "LockPersonality=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "SystemCallArchitectures=native",
    "UMask=0077",
)
_SYSTEM_ONLY = (
    "CapabilityBoundingSet=",
    "ProtectSystem=strict",
    # Of applications of a node; writable directories are named by ReadWritePaths.
    "ProtectHome=read-only",
    "PrivateTmp=yes",
    "ProtectClock=yes",
    "ProtectControlGroups=yes",
    "ProtectHostname=yes",
    "ProtectKernelLogs=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelTunables=yes",
    "ProtectProc=invisible",
    "RemoveIPC=yes",
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
)
_MANAGERS_ABOVE = (
    "PrivateDevices=yes",
    "RestrictNamespaces=yes",
    "SystemCallErrorNumber=EPERM",
    "SystemCallFilter=@system-service",
)
"""A node runs programs of users, which may use GPUs and make containers."""
_NODE = (
    # A worker that is killed for its memory is replaced, and the node goes on.
    "OOMPolicy=continue",
    "LimitNOFILE=65536",
    "TasksMax=infinity",
)


class ServiceReply(msgspec.Struct, frozen=True, kw_only=True):
    """A unit: its file, its text, and what to do next; no file after a dry run."""

    ok: bool = True
    path: str = ""
    text: str
    next: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield the text after a dry run; else the file, and what to do next."""
        if not self.path:
            yield from self.text.splitlines()
            return
        yield self.path
        yield from (f"  {command}" for command in self.next)


@click.group("service")
def service_command() -> None:
    """Managers as services of systemd, which start with this host."""


@service_command.command("install")
@output_options
@click.argument("role", type=click.Choice(["node", "island", "master"]))
@click.argument("arguments", metavar="[-- ARGUMENT...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--user", "is_of_user", is_flag=True, help="A service of this user, below the user's configuration.")
@click.option(
    "--account", default="dropflow", show_default=True, metavar="NAME", help="Account that a system service runs as."
)
@click.option("--dry-run", is_flag=True, help="Print the unit, and write nothing.")
def install_command(
    output: CommandOutput, *, role: str, arguments: tuple[str, ...], is_of_user: bool, account: str, dry_run: bool
) -> Exit:
    """Write a hardened unit of systemd for the manager of this host.

    Arguments behind -- are those of 'dropflow node', 'island' or 'master'. Its log goes to the journal. When it is
    stopped, a node drains, for its --drain-seconds. The service is neither enabled nor started; the answer names the
    commands for that. An earlier unit that was written by this command is replaced.
    """
    parsed = load_command(role).make_context(f"dropflow {role}", list(arguments)).params
    text = unit_text(role, arguments, account="" if is_of_user else account, drain=parsed.get("drain_seconds"))
    if dry_run:
        output.answer(ServiceReply(text=text))
        return Exit.FINISHED
    if not is_of_user:
        _check_account(account)
    import platformdirs

    folder = Path(platformdirs.user_config_dir("systemd")) / "user" if is_of_user else _SYSTEM
    path = folder / f"dropflow-{role}.service"
    _write(path, text)
    systemctl = ["systemctl", *(["--user"] if is_of_user else [])]
    start = [" ".join([*systemctl, "enable", "--now", path.stem])]
    if not _reload(systemctl):
        start = [" ".join([*systemctl, "daemon-reload"]), *start]
    if is_of_user:
        start.append("loginctl enable-linger   # so that it also runs when you are not logged in")
    output.answer(ServiceReply(path=str(path), text=text, next=tuple(start)))
    return Exit.FINISHED


def unit_text(role: str, arguments: Sequence[str], *, account: str, drain: Any = None) -> str:
    """Return the unit of a manager.

    Parameters
    ----------
    arguments : sequence of str
        Arguments of its command.
    account : str
        The account of a system service; empty for the service of a user.
    drain : float, optional
        How long a node drains, if not as long as by default.
    """
    # The group makes the services of one host link to each other, and keeps the token out of the journal.
    own = (sys.executable, "-m", "dropflow", role, "--group", "services", *arguments)
    stop = _STOP_SECONDS + (30 if drain is None else int(drain)) * (role == "node")
    place = ("Environment=XDG_STATE_HOME=%S XDG_CONFIG_HOME=%S", "StateDirectory=dropflow", "StateDirectoryMode=0700")
    system = (f"User={account}", *place, "WorkingDirectory=%S/dropflow", *_SYSTEM_ONLY)
    above = () if role == "node" else _MANAGERS_ABOVE
    lines = [
        _MARK,
        "[Unit]",
        f"Description=dropflow {role} manager",
        *(("Wants=network-online.target", "After=network-online.target") if account else ()),
        "",
        "[Service]",
        "Type=notify",
        f"ExecStart={' '.join(map(_quoted, own))}",
        "StandardOutput=null",  # the line for programs, which has the token
        "Restart=on-failure",
        "RestartSec=5",
        f"RestartPreventExitStatus={Exit.BAD_INPUT.value}",
        "KillMode=mixed",
        "TimeoutStartSec=120",
        "WatchdogSec=120",
        f"TimeoutStopSec={stop}",
        *(_NODE if role == "node" else ()),
        *_BASIC,
        *((*system, *above) if account else ()),
        "",
        "[Install]",
        f"WantedBy={'multi-user' if account else 'default'}.target",
    ]
    return "\n".join(lines) + "\n"


def _quoted(word: str) -> str:
    """Return a word of a command line of systemd."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if not word or set(" \t'\";\\") & set(word) else escaped


def _check_account(account: str) -> None:
    try:
        pwd.getpwnam(account)
    except KeyError as error:
        hint = f"make it with 'useradd --system {account}', or name another one with --account"
        raise UsageError(f"there is no account {account!r} on this host", hint=hint) from error


def _write(path: Path, text: str) -> None:
    try:
        if path.exists() and not path.read_text(encoding="utf-8").startswith(_MARK):
            hint = "move it away first; --dry-run prints the new one"
            raise ConflictError("there is a unit that this command has not written", where=str(path), hint=hint)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text.encode(), mode=0o644)
    except OSError as error:
        hint = "run this as root, or with --user"
        raise StorageError(f"the unit cannot be written: {error.strerror}", where=str(path), hint=hint) from error


def _reload(systemctl: Sequence[str]) -> bool:
    """Tell systemd to read its units again; return whether it runs here and has done that."""
    import subprocess

    if shutil.which(systemctl[0]) is None or not os.path.isdir("/run/systemd/system"):  # noqa: PTH112 - as sd_booted
        return False
    done = subprocess.run([*systemctl, "daemon-reload"], capture_output=True, check=False)  # noqa: S603 - no shell
    return done.returncode == 0
