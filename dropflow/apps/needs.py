"""Needs of components, by name; whether this host has them; and the check of all components of a graph.

A need is a text: ``class:`` and ``function:`` with a dotted name, ``program:`` with the name of a program on PATH,
``library:`` with the path or name of a shared library, ``container:engine``, ``secret:`` with a name, ``virtual:`` with
the directory of a virtual environment, ``modules:`` for the command ``module``, ``gpus:`` with their number, or
``image:`` with the name of an image, which any host with an engine can pull. A manager asks its nodes for the needs of
a graph, and places applications only on nodes that can run them (`managers.planning`).
"""

import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from dropflow.apps.app_interface import App
from dropflow.apps.check import find_absent
from dropflow.apps.command import program_path
from dropflow.apps.functions.load_function import refuse_name
from dropflow.apps.registry import app_for, builtin_name, import_builtin, refuse_missing_class, user_errors
from dropflow.apps.runtime_environment import refuse_unmet_need, refuse_unsupported
from dropflow.data.registry import store_for
from dropflow.errors import BadParameterError, DropflowError, MissingDependencyError
from dropflow.failure import Problem, Severity
from dropflow.graph.components import TIMEOUT, time_limit
from dropflow.graph.templates import GPU_FIELD, ORDER_PORT, Kind, Link, Template, needs_of
from dropflow.host.gpus import host_gpus, lack_of_gpus

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "dropflow.components"
"""The group of entry points under which a package registers its components."""


_OWN = "dropflow."
_IMAGE = "image:"


def host_needs(templates: Iterable[Template]) -> Mapping[int, tuple[str, ...]]:
    """Return the needs of the applications of a graph, by row, without applications that have none.

    An application that no host can run has no needs: the check of the components reports why.
    """
    needs_by_row: dict[int, tuple[str, ...]] = {}
    for row, template in enumerate(templates):
        if template.kind is Kind.APP and (needs := _needs(template)):
            needs_by_row[row] = needs
    return needs_by_row


def _needs(template: Template) -> tuple[str, ...]:
    name = template.component.strip()
    try:
        if builtin_name(template):
            return (*app_for(template).needs(), *gpu_needs(template))
    except DropflowError:
        return ()
    return () if name.startswith(_OWN) else (f"class:{name}", *gpu_needs(template))


def gpu_needs(template: Template) -> tuple[str, ...]:
    """Return the need for the GPUs that an application declares; empty if it declares none."""
    count = needs_of(template).gpus
    return (f"gpus:{count}",) if count else ()


def has_images(templates: Iterable[Template]) -> bool:
    """Return whether applications of a graph run in containers, whose images may take long to pull."""
    return bool(images_of(templates))


def images_of(templates: Iterable[Template]) -> list[str]:
    """Return the names of the images that applications run in."""
    needs = {
        need for needs_of_node in host_needs(templates).values() for need in needs_of_node if need.startswith(_IMAGE)
    }
    return sorted(need.removeprefix(_IMAGE) for need in needs)


def prepare_containers(
    templates: Iterable[Template],
    directory: Path,
    *,
    engine: str = "",
    report: Callable[[str], object] = lambda _: None,
) -> list[str]:
    """Pull the images of applications to this host; see `dropflow.apps.container_engine.pull_images`.

    Returns a note about each image with its digest. If a tag means different images on two nodes, their notes differ.
    """
    images = images_of(templates)
    if not images:
        return []
    from dropflow.apps.container_engine import pull_images  # noqa: PLC0415 - most graphs have no containers

    pulled = pull_images(images, directory, engine=engine, report=report)
    return [f"image {name} is {pulled[name]}" for name in images]


def note_containers(templates: Iterable[Template], directory: Path, *, engine: str = "") -> None:
    """Note in `directory` which images of this host applications would run in; none if it has no container engine."""
    if images := images_of(templates):
        from dropflow.apps.container_engine import note_images  # noqa: PLC0415 - most graphs have no containers

        with suppress(MissingDependencyError):
            note_images(images, directory, engine=engine)


def end_containers(sessions: Path) -> None:
    """Remove containers that an earlier process has left of the sessions with a directory in `sessions`."""
    if next(sessions.glob("*/containers.json"), None) is not None:
        from dropflow.apps import container_engine  # noqa: PLC0415 - most graphs have no containers

        container_engine.end_containers(sessions)


def refuse_need(need: str, where: str = "") -> None:
    """Raise if this host does not meet a need. Runs and imports nothing that it names; unknown kinds are accepted.

    Parameters
    ----------
    need : str
        Its kind and name.
    where : str
        The node of the graph, for the error.

    Raises
    ------
    DropflowError
        It is missing. The hint names what to install.
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
            refuse_unmet_need(kind, name)
        case "container":
            from dropflow.apps.container_engine import container_engine  # noqa: PLC0415 - few graphs need it

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
    from importlib.metadata import entry_points  # noqa: PLC0415 - it takes longer than all checks of a small graph

    entries = entry_points(group=ENTRY_POINTS)
    return tuple(sorted({f"{_package(entry)}: {entry.name}" for entry in entries}))


def _package(entry: "EntryPoint") -> str:
    """Return the usual spelling of the name of a distribution: packaging tools replace dashes in file names."""
    return entry.dist.name.replace("_", "-") if entry.dist else "?"


def _may_be_function(name: str) -> bool:
    """Return whether bash may have a function of this name, such as ``module``."""
    return "BASH_ENV" in os.environ or f"BASH_FUNC_{name}%%" in os.environ


# The check of all components of a graph, before anything runs: classes, parameters, ports and time limits.


def findings(
    templates: Iterable[Template], links: Sequence[Link], *, imports: bool = False
) -> Iterator[tuple[Template, DropflowError]]:
    """Yield the errors that prevent the nodes of a graph from running: data nodes first, then applications.

    Commands, managers and the translator all use this check. Nothing that the graph names is run, and classes of users
    are imported only if `imports` is set; otherwise only the existence of their modules is checked.

    Parameters
    ----------
    templates : iterable of Template
        The nodes.
    links : sequence of Link
        The links between them, with rows of the nodes.
    imports : bool
        Import the classes of users, which runs code that is installed here, to check their parameters too. For hosts
        that are about to run the graph.

    Yields
    ------
    tuple of Template and DropflowError
        At most one error for each node. Its `of_host` is whether another host may accept the node.
    """
    nodes = tuple(templates)
    inputs: dict[int, list[str]] = defaultdict(list)
    outputs: dict[int, list[str]] = defaultdict(list)
    for link in links:
        inputs[link.target].append(link.target_port)
        outputs[link.source].append(link.source_port)
    skippable = _skippable(nodes, links)
    for row, template in enumerate(nodes):
        if template.kind is Kind.DATA:
            try:
                store = store_for(template)
                store.check()
                if row not in inputs:
                    store.check_initial()
            except DropflowError as error:
                yield template, error
    for row, template in enumerate(nodes):
        if template.kind is Kind.APP:
            try:
                application = _checked_app(template, imports=imports)
                if application is not None:
                    ports = (_seen(ports[row]) for ports in (inputs, outputs))
                    application.check_ports(*ports, is_certain=row not in skippable)
            except DropflowError as error:
                yield template, error


def _seen(ports: Iterable[str]) -> list[str]:
    """Return the ports that applications see."""
    return [port for port in ports if port != ORDER_PORT]


def check(templates: Iterable[Template], links: Sequence[Link]) -> list[Problem]:
    """Return `findings` as problems of a graph that is about to run on this host; imports the classes of users.

    An empty list means that every class is known and every parameter can be used.
    """
    return [finding(template, error) for template, error in findings(templates, links, imports=True)]


def finding(template: Template, error: DropflowError, severity: Severity = Severity.ERROR) -> Problem:
    """Return `error` as a problem of the node `template`."""
    where = error.where or template.app_name or template.name or template.key
    return Problem(code=error.code, severity=severity, where=where, text=error.text, hint=error.hint)


def _checked_app(template: Template, *, imports: bool) -> App | None:
    """Check and return the application of a node; None for a class of a user that must not be imported."""
    time_limit(with_time_limit(template))
    if imports or builtin_name(template):
        application = app_for(template)
        refuse_unsupported(template, application.environment_fields)
        with user_errors(template):
            application.check()
        gpus = gpu_needs(template)
        if gpus and application.waits:
            text = "it runs in a thread of the session, and only worker processes have GPUs"
            raise BadParameterError(f"{GPU_FIELD}: {text}", where=template.name, fields=(GPU_FIELD,), hint="clear it")
        for need in (*application.needs(), *gpus):
            refuse_need(need, template.name)
        return application
    refuse_missing_class(template, template.component.strip())
    return None


def _skippable(nodes: Sequence[Template], links: Iterable[Link]) -> set[int]:
    """Return the rows of the nodes after an application that may skip its outputs."""
    following: dict[int, list[int]] = defaultdict(list)
    for link in links:
        following[link.source].append(link.target)
    waiting = [row for row, node in enumerate(nodes) if node.kind is Kind.APP and _may_skip(node)]
    skippable: set[int] = set()
    while waiting:
        new = set(following[waiting.pop()]) - skippable
        skippable |= new
        waiting += new
    return skippable


def _may_skip(template: Template) -> bool:
    try:
        ours = builtin_name(template)
    except DropflowError:
        return True
    return not ours or import_builtin(ours).skips


def with_time_limit(template: Template) -> Template:
    """Return `template` with its ``timeout`` as a setting of the node, also if it is an application argument.

    Graphs have such fields in either place. The argument stays an argument if the application itself may use it: a
    function with an argument of that name, a class of users, a command that names it.
    """
    field = template.argument(TIMEOUT.name)
    if (
        template.kind is Kind.DATA
        or field is None
        or field.is_port
        or field.parameter_type != "ApplicationArgument"
        or not (ours := builtin_name(template))
        or import_builtin(ours).uses(field, template)
    ):
        return template
    taken = replace(field, parameter_type=TIMEOUT.parameter_type)
    return replace(
        template, arguments=tuple(taken if argument is field else argument for argument in template.arguments)
    )
