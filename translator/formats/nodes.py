"""Fields of nodes, from files of all versions: lists of fields, of arguments and of ports.

In old files, ports are in separate lists, and arguments of applications are in `applicationArgs` and
`applicationParams`. All of them become `Field`s, in the order of the file.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from dropflow.failure import Problem, Severity
from translator.formats.json_document import ApplicationRecord, Json, NodeRecord, Records, objects, text, truth
from translator.formats.vocabulary import CONTROL, PARAMETER_TYPES, USAGES, Nature, canonical_fields, nature_of, natures
from translator.logical import Field, LogicalGraph, LogicalLink, LogicalNode, NodeKind, Role
from translator.problem_codes import problem

PORT_LISTS = {
    "inputPorts": "InputPort",
    "outputPorts": "OutputPort",
    "inputLocalPorts": "OutputPort",
    "outputLocalPorts": "InputPort",
}
"""Lists of ports of old files, and their usage; *local* ports are on the inside of a construct."""

_TYPES = {
    "string": "String",
    "str": "String",
    "integer": "Integer",
    "int": "Integer",
    "float": "Float",
    "double": "Float",
    "boolean": "Boolean",
    "bool": "Boolean",
    "select": "Select",
    "json": "Json",
    "python": "Python",
    "password": "Password",
    "event": "Event",
    "unknown": "Unknown",
}
_LARGEST_LIMIT = 1e300
"""Magnitude from which the end of a range counts as none."""
_SCALARS = (str, int, float, bool)
Applications = Mapping[str, tuple[LogicalNode, ...]]
"""Embedded applications by the id of their construct, in order."""
_UNUSABLE = frozenset({"", "none", "unknown", "unknownapplication"})
_OWN = ("dropclass", "base_name")
"""Fields of a construct that its application does not get."""


def read_fields(
    holder: Json, name: str, *, pointer: str, owner: str, parameter_type: str = "", problems: list[Problem]
) -> tuple[Field, ...]:
    """Return the fields in the list (or, in V4, the object) `name` of `holder`.

    Parameters
    ----------
    holder : mapping
        The node as in the file.
    name : str
        Attribute of `holder` with the fields.
    pointer : str
        JSON pointer of `holder`.
    owner : str
        Id of the node, used for the ids of fields without one.
    parameter_type : str
        Kind of the parameters for fields without one; ``ComponentParameter`` by default.
    problems : list of Problem
        Gets the findings.
    """
    fields = []
    for place, raw in objects(holder, name, pointer):
        label = text(raw, "name", "text")
        if not label and _usage(raw) != "NoPort":
            label = "port"
        if not label:
            if isinstance(raw.get("name"), str) or isinstance(raw.get("text"), str):
                problems.append(_nameless(place))
            continue
        position = place.rpartition("/")[2]
        fields.append(
            _field(
                raw,
                id_=text(raw, "id") or (f"{owner}/{name}/{position}"),
                label=label,
                pointer=place,
                parameter_type=parameter_type,
                problems=problems,
            )
        )
    return tuple(fields)


def read_ports(holder: Json, name: str, *, pointer: str, owner: str) -> tuple[Field, ...]:
    """Return the ports in one of the `PORT_LISTS` of an old node."""
    ports = []
    for place, raw in objects(holder, name, pointer):
        event = truth(raw.get("event")) is True
        ports.append(
            Field(
                id=text(raw, "Id", "id") or f"{owner}/{name}/{place.rpartition('/')[2]}",
                name=text(raw, "IdText", "name", "text") or "port",
                type="Event" if event else _type(raw.get("type")) or "Object",
                usage=PORT_LISTS[name],
                parameter_type="ApplicationArgument",
                description=text(raw, "description"),
                pointer=place,
            )
        )
    return tuple(ports)


def merge_ports(fields: Iterable[Field], ports: Iterable[Field]) -> tuple[Field, ...]:
    """Return the fields, then the ports that are not among them. An id in both directions is a port for both."""
    merged = list(fields)
    places = {field.id: place for place, field in reversed(list(enumerate(merged)))}
    for port in ports:
        place = places.setdefault(port.id, len(merged))
        if place == len(merged):
            merged.append(port)
        else:
            usages = {merged[place].usage, port.usage} - {"NoPort"}
            merged[place] = replace(merged[place], usage=usages.pop() if len(usages) == 1 else "InputOutput")
    return tuple(merged)


def _field(raw: Json, *, id_: str, label: str, pointer: str, parameter_type: str, problems: list[Problem]) -> Field:
    usage, kind = _usage(raw), _parameter_type(raw, parameter_type)
    event = truth(raw.get("event")) is True
    return Field(
        id=id_,
        name=label,
        value=raw.get("value"),
        default=raw.get("defaultValue", raw.get("default")),
        type="Event" if event else _type(raw.get("type")) or "String",
        encoding=text(raw, "encoding"),
        usage=usage,
        parameter_type=kind,
        positional=_flag(raw, "positional", label, pointer, problems),
        precious=_flag(raw, "precious", label, pointer, problems),
        options=tuple(str(option) for option in _options(raw)),
        minimum=_limit(raw, "minimum"),
        maximum=_limit(raw, "maximum"),
        description=text(raw, "description"),
        pointer=pointer,
    )


def _nameless(pointer: str) -> Problem:
    text = "a field without a name is ignored"
    return problem("LG007", text, where=pointer, hint="give it a name", severity=Severity.WARNING)


def _usage(raw: Json) -> str:
    for name in ("usage", "fieldType"):
        usage = USAGES.get(text(raw, name).lower())
        if usage:
            return usage
    return "NoPort"


def _parameter_type(raw: Json, default: str) -> str:
    for name in ("parameterType", "fieldType"):
        parameter_type = PARAMETER_TYPES.get(text(raw, name).lower())
        if parameter_type:
            return parameter_type
    if USAGES.get(text(raw, "fieldType").lower()):
        return "ApplicationArgument"
    return default or "ComponentParameter"


def _type(value: Any) -> str:
    type_name = value.strip() if isinstance(value, str) else ""
    return _TYPES.get(type_name.lower(), type_name)


def _flag(raw: Json, name: str, label: str, pointer: str, problems: list[Problem]) -> bool:
    flag = truth(raw.get(name))
    if flag is None:
        problems.append(
            problem(
                "LG007",
                f"{name!r} of field {label!r} is {raw.get(name)!r:.60}, neither true nor false; false is used",
                where=f"{pointer}/{name}",
                hint="use true or false",
                severity=Severity.WARNING,
            )
        )
    return flag is True


def _limit(raw: Json, name: str) -> float | None:
    """Return an end of the range of a value, which EAGLE does not know; None if it is not a number."""
    limit = raw.get(name)
    if isinstance(limit, bool) or not isinstance(limit, int | float):
        return None
    return float(limit) if abs(limit) < _LARGEST_LIMIT else None


def _options(raw: Json) -> Iterator[Any]:
    options = raw.get("options")
    if isinstance(options, list):
        yield from (option for option in options if isinstance(option, _SCALARS))


# Applications of constructs: they become nodes, and links end on them.
#
# In files of the OJS family, links end on the construct for both of its applications; the port decides which is meant.
# The first application gets the name of the construct's drops and its parameters, as in DALiuGE: its `key` is the id of
# the construct, and it has fields such as ``num_of_copies``.


def is_usable(application: ApplicationRecord) -> bool:
    """Return whether an application was chosen: editors use ``UnknownApplication`` if not."""
    return application.category.lower() not in _UNUSABLE


def application_nodes(construct: NodeRecord, fields: tuple[Field, ...], taken: set[str]) -> Iterator[LogicalNode]:
    """Yield the usable applications of a construct as nodes.

    Parameters
    ----------
    construct : NodeRecord
        The construct as in the file.
    fields : tuple of Field
        Its own fields with canonical names. The first application gets them after its own; of two with one name, that
        of the construct is kept.
    taken : set of str
        Ids in use; the ids of the applications are added. An application whose id is missing or in use gets one made of
        the id of the construct and its role.
    """
    parameters = tuple(field for field in fields if not field.is_port and field.name not in _OWN)
    usable = [application for application in construct.applications if is_usable(application)]
    for position, application in enumerate(usable):
        category, kind = nature_of(application.category, application.fields)
        own = canonical_fields(application.fields, category, kind, {})
        id_ = application.id if application.id and application.id not in taken else ""
        id_ = id_ or f"{construct.id}-{application.role.value}"
        taken.add(id_)
        first = position == 0
        if first:
            own = merge_ports(own, spare_ports(construct))
        yield LogicalNode(
            id=id_,
            name=(construct.name if first else application.name) or application.name or construct.id,
            category=category,
            kind=NodeKind.APP,
            embedded_in=construct.id,
            role=application.role,
            key=construct.id if first else id_,
            app_name=application.name,
            fields=_with_parameters(own, parameters) if first else own,
            pointer=application.pointer,
            description=application.description,
        )


def _with_parameters(own: tuple[Field, ...], parameters: tuple[Field, ...]) -> tuple[Field, ...]:
    names = {field.name for field in parameters}
    return (*(field for field in own if field.is_port or field.name not in names), *parameters)


def spare_ports(construct: NodeRecord) -> tuple[Field, ...]:
    """Return ports of applications that were not chosen. Links may name them, so another node gets them."""
    return tuple(
        field
        for application in construct.applications
        if not is_usable(application)
        for field in application.fields
        if field.is_port
    )


def end_on_applications(
    link: LogicalLink, applications: Applications, parents: Mapping[str, str | None], renamed: Mapping[str, str]
) -> LogicalLink:
    """Return the link with its ends on embedded applications instead of their constructs.

    Parameters
    ----------
    link : LogicalLink
        The link as in the file.
    applications : mapping
        Embedded applications by construct.
    parents : mapping
        The construct around each node.
    renamed : mapping
        Construct of each application that was not chosen, by its id: links to it end on the construct.
    """
    source = renamed.get(link.source, link.source)
    target = renamed.get(link.target, link.target)
    starts = applications.get(source, ())
    ends = applications.get(target, ())
    return replace(
        link,
        source=_application(starts, link.source_port, "OutputPort", inside=parents.get(target) == source) or source,
        target=_application(ends, link.target_port, "InputPort", inside=parents.get(source) == target) or target,
    )


def _application(candidates: tuple[LogicalNode, ...], port: str, usage: str, *, inside: bool) -> str:
    """Return the application of a link: by port, else the only one, else by the other end of the link.

    `inside` is true if the other end is in the construct: the input application writes to the inside, the output
    application reads from there.
    """
    having = [app for app in candidates if port in app.by_id and app.by_id[port].is_port]
    directed = [app for app in having if app.by_id[port].usage in (usage, "InputOutput")]
    chosen = directed or having or list(candidates)
    if len(chosen) > 1:
        wanted = Role.INPUT if inside == (usage == "OutputPort") else Role.OUTPUT
        chosen = [app for app in chosen if app.role is wanted] or chosen
    return chosen[0].id if chosen else ""


# Ids of the ports of links, in files that have their names.


def name_ports(link: LogicalLink, nodes: Mapping[str, LogicalNode]) -> LogicalLink:
    """Return the link with ids of its ports instead of their names, which old files have."""
    source = _port(nodes.get(link.source), link.source_port, "OutputPort")
    target = _port(nodes.get(link.target), link.target_port, "InputPort")
    if (source, target) == (link.source_port, link.target_port):
        return link
    return replace(link, source_port=source, target_port=target)


def _port(node: LogicalNode | None, port: str, usage: str) -> str:
    if node is None or not port or port in node.by_id:
        return port
    named = [field for field in node.fields if field.name == port and field.usage in (usage, "InputOutput")]
    return named[0].id if len(named) == 1 else port


# The logical graph from the records of a file: kinds, canonical names, applications as nodes, links to them.


def assemble(records: Records, name: str, problems: list[Problem]) -> LogicalGraph:
    """Make the logical graph of a file.

    Parameters
    ----------
    records : Records
        The content of the file.
    name : str
        Name of the graph.
    problems : list of Problem
        Gets the findings.
    """
    kinds = natures(records, problems)
    taken = {record.id for record in records.nodes}
    applications: dict[str, tuple[LogicalNode, ...]] = {}
    nodes: list[LogicalNode] = []
    for record in records.nodes:
        node = _node(record, kinds[record.id])
        nodes.append(node)
        if node.kind is NodeKind.CONSTRUCT and node.id not in applications:
            applications[node.id] = tuple(application_nodes(record, node.fields, taken))
            nodes.extend(applications[node.id])
    by_id = {node.id: node for node in reversed(nodes)}
    links = _links(records, applications, by_id, problems)
    return LogicalGraph(
        name=name,
        family=records.family.value,
        nodes=tuple(nodes),
        links=tuple(name_ports(link, by_id) for link in links),
        configurations=records.configurations,
        active_configuration=records.active_configuration,
        description=records.description,
    )


def _node(record: NodeRecord, nature: Nature) -> LogicalNode:
    category, kind = nature
    fields = record.fields
    if kind is NodeKind.CONSTRUCT:
        fields = merge_ports(fields, spare_ports(record))
    else:
        for application in record.applications:
            fields = merge_ports(fields, (field for field in application.fields if field.is_port))
    return LogicalNode(
        id=record.id,
        name=record.name or record.id,
        category=category,
        kind=kind,
        parent=record.parent,
        key=record.id,
        fields=canonical_fields(fields, category, kind, record.switches),
        pointer=record.pointer,
        position=record.position,
        description=record.description,
    )


def _links(
    records: Records, applications: Applications, by_id: Mapping[str, LogicalNode], problems: list[Problem]
) -> Iterator[LogicalLink]:
    parents = {record.id: record.parent for record in records.nodes}
    renamed = {
        application.id: record.id
        for record in records.nodes
        for application in record.applications
        if application.id and application.id not in by_id and not is_usable(application)
    }
    for link in records.links:
        silent = [by_id[end] for end in (link.source, link.target) if end in by_id and _is_silent(by_id[end])]
        if silent:
            problems.append(_dropped(link, silent[0]))
        else:
            yield end_on_applications(link, applications, parents, renamed)


def _is_silent(node: LogicalNode) -> bool:
    return node.kind in (NodeKind.NOTE, NodeKind.GLOBALS)


def _dropped(link: LogicalLink, node: LogicalNode) -> Problem:
    if node.category in CONTROL:
        text = f"{node.category} nodes are not used any more: {node.name!r} and its edge are ignored"
        return problem("LG031", text, where=link.pointer)
    return problem(
        "LG003",
        f"an edge ends on {node.category} {node.name!r}, which has no drops; the edge is ignored",
        where=link.pointer,
        severity=Severity.WARNING,
    )
