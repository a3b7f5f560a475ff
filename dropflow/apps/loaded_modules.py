"""Modules of users that a process has loaded, and that were edited since: it would run their old code.

Worker processes of nodes run many sessions. One that has such a module when a session begins is replaced; other
processes do not take or store results of functions that use it.
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
"""Times of the sources of modules, in ns, as they were when this process loaded them."""
_previous_call: dict[str, float] = {}


def outdated_modules(clock: Clock) -> frozenset[str]:
    """Return the modules of users, by `module_name`, whose code in this process may not be that of the file.

    A process that runs several sessions calls this at the beginning of each. A module that was not loaded at the last
    call was loaded since; its source was the present one if that is older than the call.
    """
    known = _previous_call.get("time", 0.0) or psutil.Process().create_time()
    _previous_call["time"] = clock.now()
    found = set()
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if not path or name.partition(".")[0] in _OURS or not is_user_file(path):
            continue
        try:
            changed = os.stat(path).st_mtime_ns  # noqa: PTH116 - all modules of a process
        except OSError:
            continue
        if name not in _loaded and changed < known * 1e9:
            _loaded[name] = changed
        if _loaded.get(name) != changed:
            found.add(module_name(Path(path), name))
    return frozenset(found)


def is_user_file(path: str) -> bool:
    """Return whether the source of a module belongs to the user, and not to Python or an installed package."""
    return not path.startswith(_installed_places())


def module_name(path: Path, name: str) -> str:
    """Return how people know a module."""
    return path.name if path.stem != "__init__" else f"{name}/{path.name}"


@cache
def _installed_places() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    places = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    places |= {place for place in sys.path if place.endswith(("site-packages", "dist-packages"))}
    return tuple(f"{place}/" for place in sorted(places))
