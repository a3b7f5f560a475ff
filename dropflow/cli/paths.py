"""Where keys, sessions and tokens are: below the directories of the user, by the XDG rules.

::

    $XDG_CONFIG_HOME/dropflow/cluster.key     the key of the cluster
    $XDG_STATE_HOME/dropflow/<name>/          sessions of the manager of that name
    $XDG_STATE_HOME/dropflow/tokens/<host>/   one file for each manager that runs on this host

The hosts of a cluster may share the home directory, so what belongs to one host is below the name of the host.
"""

import socket
from pathlib import Path

import platformdirs

from dropflow.ids import safe_name

__all__ = ["default_key", "default_root", "token_directory"]


def default_key() -> Path:
    """Return the default path of the cluster key."""
    return Path(platformdirs.user_config_dir("dropflow")) / "cluster.key"


def default_root(name: str) -> Path:
    """Return the default directory of the manager called `name`."""
    return _state() / safe_name(name, fallback="manager")


def token_directory(*, host: str | None = None) -> Path:
    """Return the directory of the records of managers on `host` (by default this host)."""
    return _state() / "tokens" / safe_name(socket.gethostname() if host is None else host, fallback="host")


def _state() -> Path:
    return Path(platformdirs.user_state_dir("dropflow"))
