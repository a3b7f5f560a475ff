"""Which application serves which class name in a graph. The tables are data; a class is imported when it is needed.

A node's class is looked up in this order:

1. our own applications, under all names that graphs know them by. DALiuGE moved packages more often than it renamed
   classes, so below ``dlg``, ``dfms`` and ``apps`` the last part of a name is enough;
2. what DALiuGE has and we do not: refused, with the way out;
3. a blank class, or a placeholder of a palette: by the node's category;
4. a class of the user: any importable subclass of `dropflow.apps.api.App`.

`findings` asks this, and the registry of the data classes, for all nodes of a graph before anything runs.
"""

import importlib
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from dropflow.apps.api import App
from dropflow.apps.static_lookup import find_absent
from dropflow.data.registry import store_for
from dropflow.engine.component import Component
from dropflow.engine.time_limit import TIMEOUT, time_limit
from dropflow.errors import AppError, DropflowError, MissingDependencyError, UnknownComponentError
from dropflow.exception_text import summary_of
from dropflow.graph.templates import Kind, Link, Template
from dropflow.problems import Problem, Severity

__all__ = [
    "APPLICATIONS",
    "APP_COMPONENTS",
    "app_class",
    "app_components",
    "app_for",
    "check",
    "finding",
    "findings",
    "with_time_limit",
]

_WHAT_USERS_RAISE = (Exception, SystemExit, GeneratorExit)
"""What becomes an error of the graph when an import or a constructor of users raises it; Ctrl-C does not."""

APP_COMPONENTS: tuple[Component, ...]
"""The definitions of all built-in applications, for the palette and the reference; made when first asked for."""

APPLICATIONS: Mapping[str, str] = {
    "BashShellApp": "dropflow.apps.shell:BashShellApp",
    "StreamingInputBashApp": "dropflow.apps.shell:StreamingInputBashApp",
    "StreamingOutputBashApp": "dropflow.apps.shell:StreamingOutputBashApp",
    "StreamingInputOutputBashApp": "dropflow.apps.shell:StreamingInputOutputBashApp",
    "PyFuncApp": "dropflow.apps.function:PyFuncApp",
    "PythonMemberFunction": "dropflow.apps.member_function:PythonMemberFunction",
    "Branch": "dropflow.apps.builtin.branch:Branch",
    "SimpleBranch": "dropflow.apps.builtin.simple_branch:SimpleBranch",
    "NullBarrierApp": "dropflow.apps.builtin.null:NullBarrierApp",
    "SleepApp": "dropflow.apps.builtin.sleep:SleepApp",
    "SleepAndCopyApp": "dropflow.apps.builtin.sleep:SleepAndCopyApp",
    "CopyApp": "dropflow.apps.builtin.copy:CopyApp",
    "HelloWorldApp": "dropflow.apps.builtin.hello:HelloWorldApp",
    "RandomArrayApp": "dropflow.apps.builtin.arrays:RandomArrayApp",
    "AverageArraysApp": "dropflow.apps.builtin.arrays:AverageArraysApp",
    "GenericScatterApp": "dropflow.apps.builtin.scatter:GenericScatterApp",
    "GenericNpyScatterApp": "dropflow.apps.builtin.npy:GenericNpyScatterApp",
    "GenericGatherApp": "dropflow.apps.builtin.gather:GenericGatherApp",
    "GenericNpyGatherApp": "dropflow.apps.builtin.npy:GenericNpyGatherApp",
    "ArrayGatherApp": "dropflow.apps.builtin.gather:ArrayGatherApp",
    "DictGatherApp": "dropflow.apps.builtin.gather:DictGatherApp",
    "GroupByApp": "dropflow.apps.builtin.groupby:GroupByApp",
    "PickOne": "dropflow.apps.builtin.pick:PickOne",
    "CRCApp": "dropflow.apps.builtin.checksum:CRCApp",
    "UrlRetrieveApp": "dropflow.apps.builtin.url:UrlRetrieveApp",
    "SocketListenerApp": "dropflow.apps.builtin.listener:SocketListenerApp",
    "ListAppendThrashingApp": "dropflow.apps.builtin.thrash:ListAppendThrashingApp",
}
"""Class names of our applications, and where each is."""

_SAME_AS: Mapping[str, str] = {
    "BarrierAppDROP": "NullBarrierApp",
    "BranchAppDrop": "SimpleBranch",
    "BranchAppDROP": "SimpleBranch",
    "BranchApp": "SimpleBranch",
    "CRCStreamApp": "CRCApp",
    "PyMemberApp": "PythonMemberFunction",
}
_HOUSES = ("dlg.", "dfms.", "apps.", "dropflow.apps.")
_PLACEHOLDERS = frozenset({"", "PythonApp", "DALiuGEApp", "UnknownApplication", "Component", "test.graphsRepository"})
"""What palettes and old editors write where a class should be; the last part of a ``dlg`` name counts."""

_BY_CATEGORY: Mapping[str, str] = {
    name.lower(): name for name in ("BashShellApp", "PyFuncApp", "PythonMemberFunction", "Branch")
}
_CONTAINERS = "run the program with a BashShellApp node, where it is installed"
_COMPILED = "wrap the library in a Python function (PyFuncApp) or a program (BashShellApp)"
_LATER: Mapping[str, tuple[str, str]] = {
    "DockerApp": ("a Docker container", _CONTAINERS),
    "SingularityApp": ("a Singularity container", _CONTAINERS),
    "DynlibApp": ("a shared library", _COMPILED),
    "DynlibStreamApp": ("a shared library", _COMPILED),
    "DynlibProcApp": ("a shared library", _COMPILED),
    "MPIApp": ("an MPI program", "start it with mpirun in a BashShellApp node"),
    "ScpApp": ("a copy by scp", "run scp in a BashShellApp node"),
    "NgasArchivingApp": ("an NGAS archive", "write a File and archive it with a BashShellApp node"),
    "ExternalStoreApp": ("an external store", "write a File and store it with a BashShellApp node"),
    "SubGraphLocal": ("a subgraph at run time", "draw the subgraph with the SubGraph construct, which is unrolled"),
    "MSPlasmaReader": ("a Plasma store", "use SharedMemory nodes, which need no store"),
    "MSPlasmaWriter": ("a Plasma store", "use SharedMemory nodes, which need no store"),
    "MSStreamingPlasmaConsumer": ("a Plasma store", "use SharedMemory nodes, which need no store"),
    "MSStreamingPlasmaProducer": ("a Plasma store", "use SharedMemory nodes, which need no store"),
    "ResultTransmitter": ("DALiuGE's imitation of Dask", "write the result to a File"),
}
"""Applications of DALiuGE that this version does not have: what they are, and what to do."""

_LATER_CATEGORIES: Mapping[str, str] = {
    "docker": "DockerApp",
    "singularity": "SingularityApp",
    "dynlibapp": "DynlibApp",
    "dynlibprocapp": "DynlibProcApp",
    "dynlibobject": "DynlibApp",
    "dynlibmemberfunction": "DynlibApp",
    "mpi": "MPIApp",
}


def app_for(template: Template) -> App:
    """The application of an application node, ready to run its attempts.

    Raises
    ------
    UnknownComponentError, MissingDependencyError
        As `app_class`.
    BadParameterError
        Lists every parameter that cannot be used.
    AppError
        The class of a user raised something else when it was made.
    """
    kind = app_class(template)
    with _errors_of_users(template):
        application = kind(template)
        if hasattr(application, "component"):
            _ = application.parameters  # parsed here, once, so that bad ones are known before anything runs
    return application


def app_class(template: Template) -> type[App]:
    """The class of the application that serves a node.

    Raises
    ------
    UnknownComponentError
        No class answers to its name; says which module is missing, or which name was probably meant.
    MissingDependencyError
        It is one of DALiuGE's that this version does not have; says what to do instead.
    """
    ours = _ours(template)
    return _import_ours(ours) if ours else _import_theirs(template, template.component.strip())


def findings(
    templates: Iterable[Template], links: Sequence[Link], *, imports: bool = False
) -> Iterator[tuple[Template, DropflowError]]:
    """Everything that keeps the nodes of a graph from running: data nodes first, then applications.

    This is the one judgement of components: commands, managers and the translator all ask it. Nothing that the graph
    names is run, and no class of users is imported unless `imports` is set; their modules are only looked for.

    Parameters
    ----------
    templates : iterable of Template
        The nodes.
    links : sequence of Link
        Between them, by row.
    imports : bool
        Import the classes of users, which runs code that is installed here, to judge their parameters too. For hosts
        that are about to run the graph.

    Yields
    ------
    tuple of Template and DropflowError
        At most one error a node. Its `of_host` says whether another host may accept the node.
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
                    application.check_ports(inputs[row], outputs[row], is_certain=row not in skippable)
            except DropflowError as error:
                yield template, error


def check(templates: Iterable[Template], links: Sequence[Link]) -> list[Problem]:
    """`findings` as errors about a graph that is about to run on this host; imports the classes of users.

    An empty list means that every class is known and every parameter can be used.
    """
    return [finding(template, error) for template, error in findings(templates, links, imports=True)]


def finding(template: Template, error: DropflowError, severity: Severity = Severity.ERROR) -> Problem:
    """`error` as a finding about the node `template`."""
    where = error.where or template.app_name or template.name or template.key
    return Problem(code=error.code, severity=severity, where=where, text=error.text, hint=error.hint)


@contextmanager
def _errors_of_users(template: Template) -> Iterator[None]:
    """Turn what the class of a user raises while it is made or checked into an `AppError`."""
    try:
        yield
    except DropflowError:
        raise
    except _WHAT_USERS_RAISE as problem:
        raise AppError(
            f"the application '{template.component}' cannot be made: {summary_of(problem)}",
            where=_name(template),
            hint="correct the class, or the fields of this node that it reads",
        ) from problem


def _checked_app(template: Template, *, imports: bool) -> App | None:
    """The application of a node, its own checks done; None where only importing it can tell."""
    time_limit(with_time_limit(template))
    if imports or _ours(template):
        application = app_for(template)
        with _errors_of_users(template):
            application.check()
        return application
    _refuse_theirs(template, template.component.strip())
    return None


def _skippable(nodes: Sequence[Template], links: Iterable[Link]) -> set[int]:
    """Rows of the nodes that follow an application that may skip its outputs."""
    following: dict[int, list[int]] = defaultdict(list)
    for link in links:
        following[link.source].append(link.target)
    waiting = [row for row, node in enumerate(nodes) if node.kind is Kind.APP and _may_skip(node)]
    found: set[int] = set()
    while waiting:
        new = set(following[waiting.pop()]) - found
        found |= new
        waiting += new
    return found


def _may_skip(template: Template) -> bool:
    try:
        ours = _ours(template)
    except DropflowError:
        return True
    return not ours or _import_ours(ours).skips


def with_time_limit(template: Template) -> Template:
    """`template`, its ``timeout`` as a field of the node where the graph has it as an application argument.

    Graphs write the fields of every node in either place. The argument stays what it is where the application itself
    may use it: a function with an argument of that name, a class of users, a command that mentions it.
    """
    field = template.argument(TIMEOUT.name)
    if (
        template.kind is Kind.DATA
        or field is None
        or field.is_port
        or field.parameter_type != "ApplicationArgument"
        or not (ours := _ours(template))
        or _import_ours(ours).uses(field, template)
    ):
        return template
    taken = replace(field, parameter_type=TIMEOUT.parameter_type)
    return replace(template, arguments=tuple(taken if one is field else one for one in template.arguments))


def app_components() -> tuple[Component, ...]:
    """The definitions of all built-in applications, in the order of `APPLICATIONS`."""
    return tuple(_import_ours(name).component for name in APPLICATIONS)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> tuple[Component, ...]:
        """Make `APP_COMPONENTS` on demand, so that a worker imports only the applications it runs."""
        if name == "APP_COMPONENTS":
            return app_components()
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _ours(template: Template) -> str:
    """Our name for the application of a node; empty for a class of the user.

    Raises
    ------
    UnknownComponentError, MissingDependencyError
        As `app_class`.
    """
    name = template.component.strip()
    last = name.rpartition(".")[2]
    ours = name == last or name.startswith(_HOUSES)
    if ours and _known(last):
        return _for_member(_known(last), template)
    if ours and last in _LATER:
        raise _later(template, last)
    if name in _PLACEHOLDERS or (ours and last in _PLACEHOLDERS):
        return _by_category(template)
    if ours:
        raise _unknown(
            template, name, "dropflow has no such application; any subclass of dropflow.apps.api.App can be one"
        )
    return ""


def _known(last: str) -> str:
    """Our name for an application whose name ends so; empty if it is none of ours."""
    name = _SAME_AS.get(last, last)
    return name if name in APPLICATIONS else ""


def _for_member(name: str, template: Template) -> str:
    """DALiuGE has one class for functions and members: a node with an object coming in is a member function."""
    if name != "PyFuncApp":
        return name
    target = template.argument("self")
    takes_object = target is not None and target.usage in ("InputPort", "InputOutput")
    return "PythonMemberFunction" if takes_object or template.category == "PythonMemberFunction" else name


def _by_category(template: Template) -> str:
    category = template.category.strip().lower()
    if category in _BY_CATEGORY:
        return _for_member(_BY_CATEGORY[category], template)
    if category in _LATER_CATEGORIES:
        raise _later(template, _LATER_CATEGORIES[category])
    function = template.argument("func_name")
    if function is not None and function.value:
        return _for_member("PyFuncApp", template)
    command = template.argument("command")
    if command is not None and command.value:
        return "BashShellApp"
    stated = f", '{template.component}' being only a placeholder" if template.component.strip() else ""
    raise UnknownComponentError(
        f"application node '{_name(template)}' has no class{stated}",
        where=_name(template),
        hint="set its 'dropclass', for example dlg.apps.simple.CopyApp, or make it a PyFuncApp or BashShellApp node",
    )


def _import_ours(name: str) -> type[App]:
    module, _, attribute = APPLICATIONS[name].partition(":")
    return cast("type[App]", getattr(importlib.import_module(module), attribute))


def _import_theirs(template: Template, name: str) -> type[App]:
    """The user's class of the dotted `name`."""
    module, _, attribute = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as problem:
        raise _unknown(template, name, _missing(problem.name or module), of_host=True) from problem
    except AttributeError as problem:
        raise _unknown(template, name, _without(module, attribute), of_host=True) from problem
    except _WHAT_USERS_RAISE as problem:  # an import runs code of others
        reason = f"its module cannot be imported: {summary_of(problem)}"
        raise _unknown(template, name, reason, of_host=True) from problem
    if isinstance(found, type) and issubclass(found, App):
        return found
    if callable(found) and not isinstance(found, type):
        raise _unknown(template, name, _a_function(name), of_host=True)
    raise _unknown(template, name, "it is no subclass of dropflow.apps.api.App", of_host=True)


def _refuse_theirs(template: Template, name: str) -> None:
    """Refuse what `_import_theirs` would refuse, as far as that is known without importing anything."""
    parts = name.split(".")
    absent = find_absent(parts)
    if absent is None:
        return
    if not absent.name:
        reason = _missing(absent.module)
    elif absent.module == ".".join(parts[:-1]):
        reason = _without(absent.module, absent.name)
    else:
        reason = _missing(f"{absent.module}.{absent.name}")
    raise _unknown(template, name, reason, of_host=True)


def _without(module: str, attribute: str) -> str:
    return f"the module '{module}' is installed, but has no '{attribute}'"


def _a_function(name: str) -> str:
    return f"it is a function: use the class dlg.apps.pyfunc.PyFuncApp with func_name {name}"


def _missing(module: str) -> str:
    package = module.partition(".")[0]
    place = f"the environment that runs dropflow ({sys.prefix})"
    return f"the module '{module}' is not installed: install {package} in {place}, or put its code on PYTHONPATH"


def _unknown(template: Template, name: str, hint: str, *, of_host: bool = False) -> UnknownComponentError:
    near = get_close_matches(name.rpartition(".")[2], APPLICATIONS, n=1, cutoff=0.75)
    return UnknownComponentError(
        f"application node '{_name(template)}' has the unknown class '{name}'",
        where=_name(template),
        hint=hint + (f"; or did you mean '{_dropclass(near[0])}'?" if near else ""),
        of_host=of_host,
    )


def _dropclass(name: str) -> str:
    return _import_ours(name).component.dropclass


def _later(template: Template, last: str) -> MissingDependencyError:
    what, way_out = _LATER[last]
    return MissingDependencyError(
        f"application node '{_name(template)}' ({template.component or template.category}) is {what}, "
        "which this version of dropflow does not support",
        where=_name(template),
        hint=way_out,
    )


def _name(template: Template) -> str:
    return template.app_name or template.name or template.key
