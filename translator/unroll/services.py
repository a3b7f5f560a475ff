"""Services: constructs whose application runs alongside their content.

The application of a Service starts before the applications that use it, and stops after the last of them. It becomes
two applications: one starts the program and completes when the program is ready, the other stops it. They are joined to
the users of the service by drops without content, at a port that applications do not see (`ORDER_PORT`).

Users are the applications inside the construct, and applications outside that read outputs of the service. Another
service that is one of them is a user until it has been stopped.
"""

from collections.abc import Iterable, Sequence

import msgspec

from dropflow.graph.templates import ORDER_PORT, Kind, Template
from translator.logical import LogicalNode, NodeKind, Role
from translator.problem_codes import problem
from translator.unroll.layout import Layout
from translator.unroll.levels import Findings
from translator.unroll.node_template import NULL
from translator.unroll.wires import Unit, Wire

START, STOP = "dropflow.apps.service.ServiceApp", "dropflow.apps.service.StopServiceApp"
_COMMANDS = frozenset({"", "BashShellApp"})


def add_services(layout: Layout, units: dict[str, Unit], wires: Sequence[Wire], findings: Findings) -> list[Wire]:
    """Return the wires, with the wires of services added; add the units of services.

    Adds LG088 for a service whose application is not a command, and LG032 for one without an application.
    """
    made = list(wires)
    services: list[tuple[LogicalNode, LogicalNode]] = []
    for node in layout.graph.nodes:
        if node.kind is NodeKind.CONSTRUCT and node.category == "Service":
            app = next(
                (
                    application
                    for application in layout.graph.embedded.get(node.id, ())
                    if application.role is Role.INPUT
                ),
                None,
            )
            if app is None:
                text = f"Service {node.name!r} has no input application, which would be the service"
                hint = "give it a BashShellApp as its input application"
                findings.append(problem("LG032", text, where=node.pointer, hint=hint))
            elif _is_command(app, node, findings):
                services.append((node, app))
                _add_units(units, node, app)
    for node, app in services:
        made += _service(layout, units, node, app, drawn=wires, made=made)
    return made


def _is_command(app: LogicalNode, node: LogicalNode, findings: Findings) -> bool:
    named = str(app.value("dropclass") or "").strip().rpartition(".")[2]
    if named in _COMMANDS and (app.category == "BashShellApp" or named):
        return True
    text = f"the application of Service {node.name!r} is a {named or app.category}; a service is a command"
    findings.append(problem("LG088", text, where=app.pointer, hint="use a BashShellApp that starts the program"))
    return False


def _add_units(units: dict[str, Unit], node: LogicalNode, app: LogicalNode) -> None:
    start = units[app.id]
    units[app.id] = msgspec.structs.replace(start, template=msgspec.structs.replace(start.template, component=START))
    running, stop = _keys(start)
    units[running] = _added(start, running, f"{node.name} is running", Kind.DATA)
    units[stop] = _added(start, stop, f"stop {node.name}", Kind.APP)


def _keys(start: Unit) -> tuple[str, str]:
    return f"{start.template.key}-running", f"{start.template.key}-stop"


def _service(
    layout: Layout,
    units: dict[str, Unit],
    node: LogicalNode,
    app: LogicalNode,
    *,
    drawn: Sequence[Wire],
    made: Iterable[Wire],
) -> list[Wire]:
    running, stop = _keys(units[app.id])
    known = list(made)
    written = {wire.target for wire in drawn if wire.source == app.id}
    readers = {wire.target for wire in drawn if wire.source in written}
    inside = {
        inner.id for inner in layout.graph.nodes if inner.id in layout.home and node.id in layout.around(inner.id)
    }
    # Of a service that is a user, both applications are.
    users = [
        unit
        for unit in units
        if units[unit].is_app and units[unit].node in readers | inside and unit not in (app.id, stop)
    ]

    def ordered(source: str, target: str) -> Wire:
        ports = ORDER_PORT, ORDER_PORT
        return Wire(source=source, target=target, source_port=ports[0], target_port=ports[1], event=True, pointer=where)

    where = node.pointer
    added = [ordered(app.id, running), ordered(running, stop)]
    for user in users:
        if user not in readers:
            added.append(ordered(running, user))
        added.append(ordered(user, stop))
        if not any(wire.source == user for wire in known):
            end = f"{user}-end"
            units[end] = _added(units[user], end, f"{units[user].template.name} has ended", Kind.DATA)
            added.append(ordered(user, end))
    return added


def _added(like: Unit, key: str, name: str, kind: Kind) -> Unit:
    """Return a unit with the index space of another one: a drop without content, or the application that stops."""
    template = Template(
        key=key,
        name=name,
        kind=kind,
        component=NULL if kind is Kind.DATA else STOP,
        category="null" if kind is Kind.DATA else "DALiuGEApp",
        axes=tuple(level.axis for level in like.levels),
        error_threshold=100.0 if kind is Kind.APP else 0.0,
        block_skip=kind is Kind.APP,
        artificial=True,
        origin=like.node,
    )
    return Unit(template, like.levels, like.node)
