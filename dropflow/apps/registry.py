"""The application of each class name in a graph. Classes are imported when they are needed.

A node's class is looked up in this order:

1. built-in applications, under all names that graphs have for them. DALiuGE moved packages more often than it renamed
   classes, so below ``dlg``, ``dfms`` and ``apps`` the last part of a name is enough;
2. applications of DALiuGE that dropflow does not have: an error with an alternative;
3. a blank class, or a placeholder of a palette: by the category of the node;
4. a class of the user: any importable subclass of `dropflow.App`.

`dropflow.apps.needs` checks all nodes of a graph before anything runs.
"""

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import cast

from dropflow.apps.app_interface import App
from dropflow.apps.check import find_absent
from dropflow.apps.runtime_environment import RuntimeEnvironment
from dropflow.data.registry import store_for
from dropflow.errors import AppError, DropflowError, MissingDependencyError, UnknownComponentError
from dropflow.failure import summary_of
from dropflow.graph.components import Component
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import TWO_PORTS, Kind, Template

_COMPILED = "give the library the C interface of DynlibApp, or wrap it in a Python function (PyFuncApp)"
UNSUPPORTED_APPS: Mapping[str, tuple[str, str]] = {
    "DynlibObject": ("an object of a shared library", _COMPILED),
    "SubGraphLocal": ("a subgraph at run time", "draw the subgraph with the SubGraph construct, which is unrolled"),
    "MSPlasmaReader": ("a Plasma store", "use SharedMemory nodes, which need no store"),
    "MSPlasmaWriter": ("a Plasma store", "use SharedMemory nodes, which need no store"),
    "MSStreamingPlasmaConsumer": ("a Plasma store", "use SharedMemory nodes, which need no store"),
    "MSStreamingPlasmaProducer": ("a Plasma store", "use SharedMemory nodes, which need no store"),
    "ResultTransmitter": ("DALiuGE's imitation of Dask", "write the result to a File"),
}
"""Applications of DALiuGE that this version does not have: what they are, and an alternative."""

UNSUPPORTED_CATEGORIES: Mapping[str, str] = {
    "dynlibobject": "DynlibObject",
    "dynlibmemberfunction": "DynlibObject",
}
"""The same by category, in lower case, of nodes without a class."""


_WHAT_USERS_RAISE = (Exception, SystemExit, GeneratorExit)
"""Exceptions of imports and constructors of users that become errors of the graph. KeyboardInterrupt does not."""

APPLICATIONS: Mapping[str, str] = {
    "BashShellApp": "dropflow.apps.shell:BashShellApp",
    "StreamingInputBashApp": "dropflow.apps.shell:StreamingInputBashApp",
    "StreamingOutputBashApp": "dropflow.apps.shell:StreamingOutputBashApp",
    "StreamingInputOutputBashApp": "dropflow.apps.shell:StreamingInputOutputBashApp",
    "MPIApp": "dropflow.apps.mpi:MPIApp",
    "DockerApp": "dropflow.apps.container:ContainerApp",
    "DynlibApp": "dropflow.apps.dynlib:DynlibApp",
    "DynlibProcApp": "dropflow.apps.dynlib:DynlibProcApp",
    "DynlibStreamApp": "dropflow.apps.dynlib:DynlibStreamApp",
    "ServiceApp": "dropflow.apps.service:ServiceApp",
    "StopServiceApp": "dropflow.apps.service:StopServiceApp",
    "PyFuncApp": "dropflow.apps.functions.function:PyFuncApp",
    "PythonMemberFunction": "dropflow.apps.functions.function:PythonMemberFunction",
    "Branch": "dropflow.apps.builtin.branch:Branch",
    "SimpleBranch": "dropflow.apps.builtin.branch:SimpleBranch",
    "NullBarrierApp": "dropflow.apps.builtin.testing:NullBarrierApp",
    "SleepApp": "dropflow.apps.builtin.testing:SleepApp",
    "SleepAndCopyApp": "dropflow.apps.builtin.testing:SleepAndCopyApp",
    "CopyApp": "dropflow.apps.builtin.copy:CopyApp",
    "HelloWorldApp": "dropflow.apps.builtin.testing:HelloWorldApp",
    "RandomArrayApp": "dropflow.apps.builtin.scatter_gather:RandomArrayApp",
    "AverageArraysApp": "dropflow.apps.builtin.scatter_gather:AverageArraysApp",
    "GenericScatterApp": "dropflow.apps.builtin.scatter_gather:GenericScatterApp",
    "GenericNpyScatterApp": "dropflow.apps.builtin.scatter_gather:GenericNpyScatterApp",
    "GenericGatherApp": "dropflow.apps.builtin.scatter_gather:GenericGatherApp",
    "GenericNpyGatherApp": "dropflow.apps.builtin.scatter_gather:GenericNpyGatherApp",
    "ArrayGatherApp": "dropflow.apps.builtin.scatter_gather:ArrayGatherApp",
    "DictGatherApp": "dropflow.apps.builtin.scatter_gather:DictGatherApp",
    "GroupByApp": "dropflow.apps.builtin.scatter_gather:GroupByApp",
    "PickOne": "dropflow.apps.builtin.scatter_gather:PickOne",
    "CRCApp": "dropflow.apps.builtin.copy:CRCApp",
    "UrlRetrieveApp": "dropflow.apps.builtin.io:UrlRetrieveApp",
    "ExternalStoreApp": "dropflow.apps.builtin.io:ExternalStoreApp",
    "NgasArchivingApp": "dropflow.apps.builtin.io:NgasArchivingApp",
    "SocketListenerApp": "dropflow.apps.builtin.io:SocketListenerApp",
    "ListAppendThrashingApp": "dropflow.apps.builtin.testing:ListAppendThrashingApp",
}
"""Class names of the built-in applications, and the module and class of each."""

_SAME_AS: Mapping[str, str] = {
    "BarrierAppDROP": "NullBarrierApp",
    "SingularityApp": "DockerApp",
    "BranchAppDrop": "SimpleBranch",
    "BranchAppDROP": "SimpleBranch",
    "BranchApp": "SimpleBranch",
    "CRCStreamApp": "CRCApp",
    "ScpApp": "CopyApp",
    "PyMemberApp": "PythonMemberFunction",
}
_DALIUGE_PACKAGES = ("dlg.", "dfms.", "apps.", "dropflow.apps.")
_PLACEHOLDERS = frozenset({"", "PythonApp", "DALiuGEApp", "UnknownApplication", "Component", "test.graphsRepository"})
"""Placeholders of palettes and old editors in place of a class; also as the last part of a ``dlg`` name."""

_BY_CATEGORY: Mapping[str, str] = {
    "mpi": "MPIApp",
    "docker": "DockerApp",
    "singularity": "DockerApp",
    **{
        name.lower(): name
        for name in ("BashShellApp", "DynlibApp", "DynlibProcApp", "PyFuncApp", "PythonMemberFunction", "Branch")
    },
}

# Applications of DALiuGE that this version of dropflow does not have.
#
# Their nodes are refused with an alternative. The data classes that dropflow does not have are in
# `dropflow.data.registry`.


def app_for(template: Template) -> App:
    """Return the application of an application node, ready to run its attempts.

    Raises
    ------
    UnknownComponentError, MissingDependencyError
        As `app_class`.
    BadParameterError
        Lists all parameters that cannot be used.
    AppError
        The constructor of a user's class raised another exception.
    """
    kind = app_class(template)
    with user_errors(template):
        application = kind(template)
        if hasattr(application, "component"):
            _ = application.parameters  # parsed now, so that bad values are found before anything runs
    return application


def app_class(template: Template) -> type[App]:
    """Return the class of the application of a node.

    Raises
    ------
    UnknownComponentError
        There is no class of its name. The hint has the missing module, or a similar name.
    MissingDependencyError
        It is an application of DALiuGE that this version does not have. The hint has an alternative.
    """
    ours = builtin_name(template)
    return import_builtin(ours) if ours else _import_user_class(template, template.component.strip())


@contextmanager
def user_errors(template: Template) -> Iterator[None]:
    """Turn exceptions of a user's class, when it is made or checked, into an `AppError`."""
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


def app_components() -> tuple[Component, ...]:
    """Return the definitions of all built-in applications, in the order of `APPLICATIONS`."""
    return tuple(import_builtin(name).component for name in APPLICATIONS)


def builtin_name(template: Template) -> str:
    """Return the name in `APPLICATIONS` of the application of a node; empty for a class of the user.

    Raises
    ------
    UnknownComponentError, MissingDependencyError
        As `app_class`.
    """
    name = template.component.strip()
    last = name.rpartition(".")[2]
    ours = name == last or name.startswith(_DALIUGE_PACKAGES)
    if ours and _known(last):
        return _for_image(_for_member(_known(last), template), template)
    if ours and last in UNSUPPORTED_APPS:
        raise _unsupported(template, last)
    if name in _PLACEHOLDERS or (ours and last in _PLACEHOLDERS):
        return _by_category(template)
    if ours:
        raise _unknown(template, name, "dropflow has no such application; any subclass of dropflow.App can be one")
    return ""


def _known(last: str) -> str:
    """Return the name in `APPLICATIONS` for the last part of a class name; empty if there is none."""
    name = _SAME_AS.get(last, last)
    return name if name in APPLICATIONS else ""


def _for_member(name: str, template: Template) -> str:
    """Return the class for a function or a member function, which has an input port ``self``: DALiuGE has one class."""
    if name != "PyFuncApp":
        return name
    target = template.argument("self")
    takes_object = target is not None and target.usage in ("InputPort", "InputOutput", TWO_PORTS)
    return "PythonMemberFunction" if takes_object or template.category == "PythonMemberFunction" else name


def _for_image(name: str, template: Template) -> str:
    """Return the application of containers for a command that is to run in an image."""
    return "DockerApp" if name == "BashShellApp" and RuntimeEnvironment.of(template).run_in else name


def _by_category(template: Template) -> str:
    category = template.category.strip().lower()
    if category in _BY_CATEGORY:
        return _for_image(_for_member(_BY_CATEGORY[category], template), template)
    if category in UNSUPPORTED_CATEGORIES:
        raise _unsupported(template, UNSUPPORTED_CATEGORIES[category])
    function = template.argument("func_name")
    if function is not None and function.value:
        return _for_member("PyFuncApp", template)
    command = template.argument("command")
    if command is not None and command.value:
        return _for_image("BashShellApp", template)
    stated = f", '{template.component}' being only a placeholder" if template.component.strip() else ""
    raise UnknownComponentError(
        f"application node '{_name(template)}' has no class{stated}",
        where=_name(template),
        hint="set its 'dropclass', for example dlg.apps.simple.CopyApp, or make it a PyFuncApp or BashShellApp node",
    )


def import_builtin(name: str) -> type[App]:
    """Import the class of a name in `APPLICATIONS`."""
    module, _, attribute = APPLICATIONS[name].partition(":")
    return cast("type[App]", getattr(importlib.import_module(module), attribute))


def _import_user_class(template: Template, name: str) -> type[App]:
    """Import the class of a user with the dotted `name`."""
    module, _, attribute = name.rpartition(".")
    try:
        value = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as problem:
        raise _unknown(template, name, _missing(problem.name or module), of_host=True) from problem
    except AttributeError as problem:
        raise _unknown(template, name, _without(module, attribute), of_host=True) from problem
    except _WHAT_USERS_RAISE as problem:  # an import runs code of users
        reason = f"its module cannot be imported: {summary_of(problem)}"
        raise _unknown(template, name, reason, of_host=True) from problem
    if isinstance(value, type) and issubclass(value, App):
        return value
    if callable(value) and not isinstance(value, type):
        raise _unknown(template, name, _a_function(name), of_host=True)
    raise _unknown(template, name, "it is not a subclass of dropflow.App", of_host=True)


def refuse_missing_class(template: Template, name: str) -> None:
    """Raise if the class of a user certainly does not exist on this host. Imports nothing."""
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
    return import_builtin(name).component.dropclass


def _unsupported(template: Template, last: str) -> MissingDependencyError:
    what, way_out = UNSUPPORTED_APPS[last]
    return MissingDependencyError(
        f"application node '{_name(template)}' ({template.component or template.category}) is {what}, "
        "which this version of dropflow does not support",
        where=_name(template),
        hint=way_out,
        of_host=True,
    )


def _name(template: Template) -> str:
    return template.app_name or template.name or template.key


# The links of a graph whose data are read while they are written.


def streaming_links(graph: PhysicalGraph) -> tuple[int, ...]:
    """Return the rows of the links that the graph declares as streaming and whose two ends support it.

    The application must set `dropflow.apps.app_interface.App.streams`, and the data class must be readable while it
    grows. Over all other links, consumers get complete data.

    Raises
    ------
    UnknownComponentError, MissingDependencyError, BadParameterError
        As `app_class` and `dropflow.data.registry.store_for`.
    """
    templates = graph.templates
    declared = [
        (row, templates[link.source], templates[link.target])
        for row, link in enumerate(graph.links)
        if link.streaming and templates[link.source].kind is Kind.DATA
    ]
    return tuple(row for row, data, app in declared if app_class(app).streams and store_for(data).growing is not None)


# The nodes of a graph that may be in a chain, which runs as one unit (`dropflow.graph.physical`).


def fusible_templates(graph: PhysicalGraph) -> tuple[int, ...]:
    """Return the groups of `dropflow.graph.physical.follower_column`, one for each template.

    Data are in a group if they are in memory. Applications are in one group if they run in the same place: one group is
    for applications that compute, another one for applications that only wait. Services, ranks of MPI jobs, nodes that
    take part in a stream, and classes that are not installed here are in no group.
    """
    streamed = {row for link in graph.links if link.streaming for row in (link.source, link.target)}
    return tuple(0 if row in streamed else _group(template) for row, template in enumerate(graph.templates))


def _group(template: Template) -> int:
    try:
        if template.kind is Kind.DATA:
            return int(store_for(template).hands_over)
        app = app_class(template)
    except DropflowError:
        return 0
    is_rank = any(axis.kind == "mpi" for axis in template.axes)
    return 0 if is_rank or not app.fuses else 2 if app.waits else 1
