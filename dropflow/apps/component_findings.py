"""The check of all components of a graph, before anything runs: classes, parameters, ports and time limits."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from dropflow.apps.api import App
from dropflow.apps.needs import gpu_needs, refuse_need
from dropflow.apps.registry import app_for, builtin_name, import_builtin, refuse_missing_class, user_errors
from dropflow.apps.surroundings import refuse_unsupported
from dropflow.data.registry import store_for
from dropflow.engine.parameters import TIMEOUT, time_limit
from dropflow.errors import BadParameterError, DropflowError
from dropflow.failure import Problem, Severity
from dropflow.graph.templates import GPU_FIELD, ORDER_PORT, Kind, Link, Template


def findings(
    templates: Iterable[Template], links: Sequence[Link], *, imports: bool = False
) -> Iterator[tuple[Template, DropflowError]]:
    """Yield what prevents the nodes of a graph from running: data nodes first, then applications.

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
        At most one error for each node. Its `of_host` says whether another host may accept the node.
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
        refuse_unsupported(template, application.surroundings)
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
    found: set[int] = set()
    while waiting:
        new = set(following[waiting.pop()]) - found
        found |= new
        waiting += new
    return found


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
    return replace(template, arguments=tuple(taken if one is field else one for one in template.arguments))
