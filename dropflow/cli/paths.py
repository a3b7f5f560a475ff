"""Where things are kept between commands: below the user's own directories, by the XDG rules.

::

    $XDG_CONFIG_HOME/dropflow/cluster.key     the key of the cluster
    $XDG_STATE_HOME/dropflow/<name>/          sessions of the manager of that name
    $XDG_STATE_HOME/dropflow/tokens/<host>/   one file for each manager that runs on this host

The home directory may be shared by the hosts of a cluster, so what belongs to one host stands below its name.
"""

import socket
from pathlib import Path

import platformdirs

from dropflow.ids import safe_name

__all__ = ["default_key", "default_root", "token_directory"]


def default_key() -> Path:
    """Where the cluster key is when nobody says otherwise."""
    return Path(platformdirs.user_config_dir("dropflow")) / "cluster.key"


def default_root(name: str) -> Path:
    """Where the manager called `name` keeps its sessions when nobody says otherwise."""
    return _state() / safe_name(name, fallback="manager")


def token_directory(*, host: str | None = None) -> Path:
    """Where the records of the managers on `host` are (by default this host)."""
    return _state() / "tokens" / safe_name(socket.gethostname() if host is None else host, fallback="host")


def _state() -> Path:
    return Path(platformdirs.user_state_dir("dropflow"))
