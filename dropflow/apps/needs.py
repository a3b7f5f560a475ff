"""What the components of a graph need of a host, by name, and whether this host has it.

A need is a text: ``class:`` and ``function:`` with a dotted name, ``program:`` with the name of a program on PATH,
``library:`` with the path or name of a shared library, ``container:engine``, ``secret:`` with a name, ``virtual:`` with
the directory of a virtual environment, ``modules:`` for the command ``module``, ``gpus:`` with their number, or
``image:`` with the name of an image, which any host with an engine can pull. A manager asks its nodes for the needs of
a graph, and places what only some nodes can run on those (`managers.planning`).
"""

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from dropflow.apps.check import find_absent
from dropflow.apps.command import program_path
from dropflow.apps.load_function import refuse_name
from dropflow.apps.registry import app_for, builtin_name
from dropflow.apps.surroundings import refuse_surrounding
from dropflow.errors import DropflowError, MissingDependencyError
from dropflow.graph.templates import Kind, Template, needs_of
from dropflow.runners.capacity import host_gpus, lack_of_gpus

ENTRY_POINTS = "dropflow.components"
"""The group of entry points under which a package registers its components."""


_OWN = "dropflow."
_IMAGE = "image:"


def host_needs(templates: Iterable[Template]) -> Mapping[int, tuple[str, ...]]:
    """Return the needs of the applications of a graph, by row; only of those that have any.

    An application that no host can run has none: the check of the components reports why.
    """
    found: dict[int, tuple[str, ...]] = {}
    for row, template in enumerate(templates):
        if template.kind is Kind.APP and (needs := _needs(template)):
            found[row] = needs
    return found


def _needs(template: Template) -> tuple[str, ...]:
    name = template.component.strip()
    try:
        if builtin_name(template):
            return (*app_for(template).needs(), *gpu_needs(template))
    except DropflowError:
        return ()
    return () if name.startswith(_OWN) else (f"class:{name}", *gpu_needs(template))


def gpu_needs(template: Template) -> tuple[str, ...]:
    """Return the need for the GPUs that an application declares; none if it declares none."""
    count = needs_of(template).gpus
    return (f"gpus:{count}",) if count else ()


def has_images(templates: Iterable[Template]) -> bool:
    """Return whether applications of a graph run in containers, whose images may take long to pull."""
    return bool(images_of(templates))


def images_of(templates: Iterable[Template]) -> list[str]:
    """Return the names of the images that applications run in."""
    needs = {need for found in host_needs(templates).values() for need in found if need.startswith(_IMAGE)}
    return sorted(need.removeprefix(_IMAGE) for need in needs)


def prepare_containers(
    templates: Iterable[Template],
    directory: Path,
    *,
    engine: str = "",
    report: Callable[[str], object] = lambda _: None,
) -> None:
    """Have the images that applications run in on this host; see `dropflow.apps.container_engine.pull_images`."""
    if images := images_of(templates):
        from dropflow.apps.container_engine import pull_images  # noqa: PLC0415 - most graphs have no containers

        pull_images(images, directory, engine=engine, report=report)


def end_containers(sessions: Path) -> None:
    """Remove containers that an earlier process has left of the sessions with a directory in `sessions`."""
    if next(sessions.glob("*/containers.json"), None) is not None:
        from dropflow.apps import container_engine  # noqa: PLC0415 - as above

        container_engine.end_containers(sessions)


def refuse_need(need: str, where: str = "") -> None:
    """Raise if this host lacks what is needed. Runs and imports nothing that it names; unknown kinds are accepted.

    Parameters
    ----------
    need : str
        Its kind and name.
    where : str
        The node of the graph, for the error.

    Raises
    ------
    DropflowError
        It is missing. The hint says what to install.
    """
    kind, _, name = need.partition(":")
    match kind:
        case "class":
            absent = find_absent(name.split("."))
            if absent is not None:
                what = f"has no '{absent.name}'" if absent.name else "is not installed"
                raise MissingDependencyError(
                    f"the module '{absent.module}' {what}",
                    hint=f"install {name.partition('.')[0]}, or put its code on PYTHONPATH",
                    where=where,
                    of_host=True,
                )
        case "function":
            refuse_name(name, where)
        case "program" if not (shutil.which(name, path=program_path()) or _may_be_function(name)):
            raise MissingDependencyError(
                f"the program '{name}' is not on PATH",
                where=where,
                hint=f"install {name}, or add its directory to PATH of the process that runs dropflow",
                of_host=True,
            )
        case "library":
            from dropflow.apps.dynlib import refuse_library  # noqa: PLC0415 - most graphs have no such application

            refuse_library(name, where)
        case "gpus" if len(host_gpus()) < int(name):
            raise lack_of_gpus(int(name), len(host_gpus()), where)
        case "secret" | "virtual" | "modules":
            refuse_surrounding(kind, name)
        case "container":
            from dropflow.apps.container_engine import container_engine  # noqa: PLC0415 - as above

            container_engine()


def unable_rows(templates: Iterable[Template]) -> tuple[int, ...]:
    """Return the applications of a graph that this host cannot run, by row."""
    refused: dict[str, bool] = {}

    def lacks(need: str) -> bool:
        if need not in refused:
            try:
                refuse_need(need)
            except DropflowError:
                refused[need] = True
            else:
                refused[need] = False
        return refused[need]

    return tuple(row for row, needs in host_needs(templates).items() if any(map(lacks, needs)))


def registered_components() -> tuple[str, ...]:
    """Return the components that installed packages register, each as package and name. Imports none of them."""
    entries = entry_points(group=ENTRY_POINTS)
    return tuple(sorted({f"{_package(entry)}: {entry.name}" for entry in entries}))


def _package(entry: EntryPoint) -> str:
    """Return the name of a distribution as people write it: tools of packaging replace dashes in files."""
    return entry.dist.name.replace("_", "-") if entry.dist else "?"


def _may_be_function(name: str) -> bool:
    """Whether bash may have a function of this name, such as ``module``."""
    return "BASH_ENV" in os.environ or f"BASH_FUNC_{name}%%" in os.environ
