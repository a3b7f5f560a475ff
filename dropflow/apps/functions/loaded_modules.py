"""Modules that were edited or installed again after a process has loaded them: it would run their old code.

Worker processes of nodes run many sessions. If a worker has such a module when a session begins, it is replaced. Other
processes do not take or store results of functions that use the module.
"""

import os
import sys
import sysconfig
from functools import cache
from pathlib import Path

import psutil

from dropflow.clock import Clock

_OURS = ("dropflow", "__main__")
_loaded: dict[str, int] = {}
"""Times of the sources of modules in ns, by path, when this process loaded them."""
_installed_anew: set[str] = set()
"""Packages that were installed again after this process had loaded them."""
_previous_call: dict[str, float] = {}


def outdated_modules(clock: Clock) -> frozenset[str]:
    """Return modules of users, by `module_name`, and packages, whose code in this process may differ from their files.

    A process that runs several sessions calls this at the beginning of each. A module that was not loaded at the last
    call was loaded since; its source was the present one if that is older than the call.
    """
    known = _previous_call.get("time", 0.0) or psutil.Process().create_time()
    _previous_call["time"] = clock.now()
    outdated = set()
    # Installing changes the directory of packages, whose modules are a thousand.
    is_installed_anew = any(_changed(place) > known for place in _installed_places())
    for name, module in list(sys.modules.items()):
        path, top = getattr(module, "__file__", None), name.partition(".")[0]
        if not path or top in _OURS:
            continue
        if not is_user_file(path):
            if is_installed_anew and _changed(path) > known:
                _installed_anew.add(top)
            continue
        try:
            changed = os.stat(path).st_mtime_ns  # noqa: PTH116 - all modules of a process
        except OSError:
            continue
        if name not in _loaded and changed < known * 1e9:
            _loaded[name] = changed
        if _loaded.get(name) != changed:
            outdated.add(module_name(Path(path), name))
    return frozenset(outdated | _installed_anew)


def _changed(path: str) -> float:
    """Return when a file was made or changed; 0 if there is none. Installers set its other times from archives."""
    try:
        return os.stat(path).st_ctime  # noqa: PTH116 - all modules of a process
    except OSError:
        return 0.0


def is_user_file(path: str) -> bool:
    """Return whether the source of a module belongs to the user, and not to Python or an installed package."""
    return not path.startswith(_installed_places())


def module_name(path: Path, name: str) -> str:
    """Return the name of a module for messages."""
    return path.name if path.stem != "__init__" else f"{name}/{path.name}"


@cache
def _installed_places() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    places = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    places |= {place for place in sys.path if place.endswith(("site-packages", "dist-packages"))}
    return tuple(f"{place}/" for place in sorted(places))
