"""Reading of the OJS family and older files: lists of nodes and links, with three kinds of identity.

A construct has its applications in its own attributes, with names that changed over the years:
``inputApplication...``, ``exitApplication...`` (the output application) and ``application`` (the input application).
"""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from dropflow.failure import Problem
from dropflow.formatting import plural
from translator.formats.json_document import (
    APPLICATION_IDS,
    ApplicationRecord,
    Family,
    Identity,
    Json,
    NodeRecord,
    Records,
    choose_identity,
    description_of,
    identity_text,
    objects,
    position,
    read_configurations,
    text,
    truth,
    unescape,
)
from translator.formats.nodes import PORT_LISTS, merge_ports, read_fields, read_ports
from translator.logical import Field, LogicalLink, Role
from translator.problem_codes import problem

_SIDES = {
    Role.INPUT: (("inputApplication", "inputApp"), ("inputAppFields", "appFields")),
    Role.OUTPUT: (("outputApplication", "exitApplication", "outputApp"), ("outputAppFields", "exitAppFields")),
}
_OUTER_PORTS = {Role.INPUT: "inputPorts", Role.OUTPUT: "outputPorts"}
_INNER_PORTS = ("inputLocalPorts", "outputLocalPorts")
_INNER_USAGES = {Role.INPUT: "OutputPort", Role.OUTPUT: "InputPort"}
"""The input application of a construct writes to the inside, and its output application reads from there."""
_NO_APPLICATION = frozenset({"", "none", "unknown"})
_SIDES_OF_A_NODE = frozenset("BTLR")
_SWITCHES = {"streaming": "streaming", "precious": "persist"}


def read_ojs(document: Json, family: Family, problems: list[Problem]) -> Records:
    """Read a document with `nodeDataArray` and `linkDataArray`.

    Parameters
    ----------
    document : mapping
        The parsed file.
    family : Family
        Its family, from `translator.formats.json_document.classify`.
    problems : list of Problem
        Gets the findings.
    """
    identity = choose_identity(document)
    raw_nodes = [
        (pointer, raw, identity_text(raw.get(identity.value), identity))
        for pointer, raw in objects(document, "nodeDataArray")
    ]
    unnamed = [(pointer, raw) for pointer, raw, id_ in raw_nodes if not id_]
    if unnamed and not {pointer for pointer, _ in unnamed} & {finding.where for finding in problems}:
        pointer, raw = unnamed[0]
        complaint = (
            f"{plural(len(unnamed), 'node')} without {identity.value!r}, which identifies the nodes of this graph; "
            f"the first is {text(raw, 'name', 'text')!r}"
        )
        problems.append(problem("LG007", complaint, where=pointer, hint="delete them and draw them again"))
    names = _Names(identity, raw_nodes)
    for _, raw in objects(document, "linkDataArray"):
        names.use(raw)
    nodes = tuple(_ojs_node(raw, id_, names, pointer, problems) for pointer, raw, id_ in raw_nodes if id_)
    configurations, active = read_configurations(document, names.find)
    return Records(
        family=family,
        nodes=nodes,
        links=tuple(_ojs_link(raw, names, pointer) for pointer, raw in objects(document, "linkDataArray")),
        configurations=configurations,
        active_configuration=active,
        steps=tuple(_steps(identity, [raw for _, raw, _ in raw_nodes])),
        description=description_of(document),
    )


class _Names:
    """Finds the id of a node by any attribute that a reference may use."""

    def __init__(self, identity: Identity, nodes: list[tuple[str, Json, str]]) -> None:
        self.identity = identity
        self.known: dict[str, str] = {}
        self.used: dict[tuple[str, str], str] = {}
        for attribute in (identity, *Identity):
            for _, raw, id_ in nodes:
                given = identity_text(raw.get(attribute.value), Identity.ID)
                if given and id_:
                    self.known.setdefault(given, id_)

    def use(self, link: Json) -> None:
        """Remember in which direction a link uses the ports at its ends."""
        for end, port, usage in (("from", "fromPort", "OutputPort"), ("to", "toPort", "InputPort")):
            self.used.setdefault((self.find(link.get(end)), text(link, port)), usage)

    def find(self, value: object) -> str:
        """Return the id of the node that `value` refers to; if there is none, `value` as text."""
        given = identity_text(value, Identity.ID)
        return self.known.get(given) or identity_text(value, self.identity)


def _ojs_node(raw: Json, id_: str, names: _Names, pointer: str, problems: list[Problem]) -> NodeRecord:
    fields = read_fields(raw, "fields", pointer=pointer, owner=id_, problems=problems)
    for old in ("applicationArgs", "applicationParams"):
        fields += read_fields(
            raw, old, pointer=pointer, owner=id_, parameter_type="ApplicationArgument", problems=problems
        )
    applications = tuple(_applications(raw, id_, names, pointer, problems))
    if not applications:
        outer = [port for old in _OUTER_PORTS.values() for port in read_ports(raw, old, pointer=pointer, owner=id_)]
        fields = merge_ports(fields, [*outer, *_inner_ports(raw, id_, names, pointer)])
    return NodeRecord(
        id=id_,
        name=text(raw, "name", "text"),
        category=text(raw, "category"),
        category_type=text(raw, "categoryType"),
        parent=names.find(raw.get("parentId")) or names.find(raw.get("group")) or None,
        fields=fields,
        applications=applications,
        switches={new: True for old, new in _SWITCHES.items() if truth(raw.get(old)) is True},
        pointer=pointer,
        position=position(raw),
        description=text(raw, "description"),
    )


def _applications(
    raw: Json, id_: str, names: _Names, pointer: str, problems: list[Problem]
) -> Iterator[ApplicationRecord]:
    """Yield the applications of a node, with their ports.

    Old files may list ports for an application that a construct does not have: a Gather with only an input application
    has its outer outputs in `outputPorts`. They belong to the application that exists.
    """
    given = {role: category for role in _SIDES if (category := _category(raw, role)).lower() not in _NO_APPLICATION}
    for role, category in given.items():
        prefixes, lists = _SIDES[role]
        fields: tuple[Field, ...] = ()
        for old in lists:
            fields += read_fields(raw, old, pointer=pointer, owner=f"{id_}/{role.value}", problems=problems)
        sides = [_OUTER_PORTS[role]] if len(given) > 1 else _OUTER_PORTS.values()
        ports = [port for old in sides for port in read_ports(raw, old, pointer=pointer, owner=id_)]
        ports += [
            port
            for port in _inner_ports(raw, id_, names, pointer)
            if len(given) == 1 or port.usage == _INNER_USAGES[role]
        ]
        own = (raw.get(name) for name in APPLICATION_IDS[names.identity.value] if name.startswith(prefixes))
        yield ApplicationRecord(
            role=role,
            id=next((own_id for value in own if (own_id := identity_text(value, names.identity))), ""),
            name=text(raw, *(f"{prefix}Name" for prefix in prefixes)),
            category=category,
            fields=merge_ports(fields, ports),
            pointer=pointer,
            description=text(raw, *(f"{prefix}Description" for prefix in prefixes)),
        )


def _inner_ports(raw: Json, id_: str, names: _Names, pointer: str) -> Iterator[Field]:
    """Yield the ports on the inside of a construct, with the direction in which links use them.

    Some files list the ports that write to the inside as `inputLocalPorts`, and others as `outputLocalPorts`.
    """
    for old in _INNER_PORTS:
        for port in read_ports(raw, old, pointer=pointer, owner=id_):
            usage = names.used.get((id_, port.id)) or names.used.get((id_, port.name)) or port.usage
            yield replace(port, usage=usage)


def _category(raw: Json, role: Role) -> str:
    prefixes, _ = _SIDES[role]
    types = [text(raw, f"{prefix}Type") for prefix in prefixes]
    if role is Role.INPUT:
        types.append(text(raw, "application"))
    return next((category for category in types if category.lower() not in _NO_APPLICATION), "")


def _ojs_link(raw: Json, names: _Names, pointer: str) -> LogicalLink:
    return LogicalLink(
        source=names.find(raw.get("from")),
        target=names.find(raw.get("to")),
        source_port=_port(raw, "fromPort"),
        target_port=_port(raw, "toPort"),
        loop_aware=truth(raw.get("loop_aware", raw.get("loopAware"))) is True,
        closes_loop=truth(raw.get("closesLoop")) is True,
        streaming=truth(raw.get("is_stream")) is True,
        pointer=pointer,
    )


def _port(raw: Json, name: str) -> str:
    """Return the id of a port; empty for the oldest links, which have only a side of the node."""
    port = text(raw, name)
    return "" if port in _SIDES_OF_A_NODE else port


def _steps(identity: Identity, nodes: list[Mapping[str, object]]) -> Iterator[str]:
    """Yield descriptions of what was migrated."""
    if identity is not Identity.ID:
        yield f"nodes are identified by {identity.value!r}"
    for attributes, meaning in (
        (tuple(PORT_LISTS), "lists of ports became fields"),
        (("applicationArgs", "applicationParams"), "lists of arguments became fields"),
        (("exitApplicationType", "exitAppFields", "application"), "old names of applications were replaced"),
        (("group",), "'group' became the parent"),
        (("text",), "'text' became the name"),
    ):
        count = sum(any(node.get(attribute) for attribute in attributes) for node in nodes)
        if count:
            yield f"{meaning} ({plural(count, 'node')})"


# Reading of EAGLE's V4 files: nodes, fields and edges are objects by id, and embedded applications are nodes.


def read_v4(document: Json, problems: list[Problem]) -> Records:
    """Read a document with `nodes` and `edges`; see `read_ojs`."""
    nodes = {unescape(pointer.rpartition("/")[2]): (pointer, raw) for pointer, raw in objects(document, "nodes")}
    inner = {given: id_ for id_, (_, raw) in reversed(nodes.items()) if (given := text(raw, "id"))}
    names = inner | {id_: id_ for id_ in nodes}
    claims = dict(_embedded(nodes, names))
    embedded = {id_: claim for id_, claim in claims.items() if claim[0] not in claims}
    applications: dict[str, list[ApplicationRecord]] = {}
    for id_, (construct, role) in embedded.items():
        application = _application(id_, role, *nodes[id_], problems)
        applications.setdefault(construct, []).append(application)
    plain = tuple(
        replace(
            _v4_node(id_, raw, names.get(text(raw, "parentId"), text(raw, "parentId")), pointer, problems),
            applications=tuple(
                sorted(applications.get(id_, ()), key=lambda application: application.role is Role.OUTPUT)
            ),
        )
        for id_, (pointer, raw) in nodes.items()
        if id_ not in embedded
    )
    configurations, active = read_configurations(document, lambda name: names.get(str(name), str(name)))
    return Records(
        family=Family.V4,
        nodes=plain,
        links=tuple(_v4_link(raw, names, pointer) for pointer, raw in objects(document, "edges")),
        configurations=configurations,
        active_configuration=active,
        steps=("objects by id were read as lists",),
        description=description_of(document),
    )


def _embedded(nodes: dict[str, tuple[str, Json]], names: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, Role]]]:
    """Yield each embedded application with its construct and role: first as applications give them, then constructs."""
    for id_, (_, raw) in nodes.items():
        construct = names.get(text(raw, "embedId"), id_)
        if construct != id_:
            yield id_, (construct, Role.INPUT)
    for id_, (_, raw) in nodes.items():
        for attribute, role in (("outputApplicationId", Role.OUTPUT), ("inputApplicationId", Role.INPUT)):
            application = names.get(text(raw, attribute), id_)
            if application != id_:
                yield application, (id_, role)


def _application(id_: str, role: Role, pointer: str, raw: Json, problems: list[Problem]) -> ApplicationRecord:
    return ApplicationRecord(
        role=role,
        id=id_,
        name=text(raw, "name"),
        category=text(raw, "category"),
        fields=read_fields(raw, "fields", pointer=pointer, owner=id_, problems=problems),
        pointer=pointer,
        description=text(raw, "description"),
    )


def _v4_node(id_: str, raw: Json, parent: str, pointer: str, problems: list[Problem]) -> NodeRecord:
    return NodeRecord(
        id=id_,
        name=text(raw, "name"),
        category=text(raw, "category"),
        category_type=text(raw, "categoryType"),
        parent=parent or None,
        fields=read_fields(raw, "fields", pointer=pointer, owner=id_, problems=problems),
        pointer=pointer,
        position=position(raw),
        description=text(raw, "description"),
    )


def _v4_link(raw: Json, names: Mapping[str, str], pointer: str) -> LogicalLink:
    source, target = text(raw, "srcNodeId"), text(raw, "destNodeId")
    return LogicalLink(
        source=names.get(source, source),
        target=names.get(target, target),
        source_port=text(raw, "srcPortId"),
        target_port=text(raw, "destPortId"),
        loop_aware=truth(raw.get("loopAware")) is True,
        closes_loop=truth(raw.get("closesLoop")) is True,
        streaming=truth(raw.get("isStream")) is True,
        pointer=pointer,
    )
