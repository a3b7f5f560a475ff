"""Applications of constructs: they become nodes, and links end on them.

In files of the OJS family, links end on the construct for both of its applications; the port tells which is meant. The
first application gets the name of the construct's drops and its parameters, as in DALiuGE: its `key` is the id of the
construct, and it has fields such as ``num_of_copies``.
"""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from translator.formats.field_names import canonical_fields
from translator.formats.fields import merge_ports
from translator.formats.node_kinds import nature_of
from translator.formats.node_records import ApplicationRecord, NodeRecord
from translator.logical import Field, LogicalLink, LogicalNode, NodeKind, Role

__all__ = ["Applications", "application_nodes", "end_on_applications", "is_usable", "spare_ports"]

Applications = Mapping[str, tuple[LogicalNode, ...]]
"""Embedded applications by the id of their construct, in order."""

_UNUSABLE = frozenset({"", "none", "unknown", "unknownapplication"})


_OWN = ("dropclass", "base_name")
"""Fields of a construct that its application does not get."""


def is_usable(application: ApplicationRecord) -> bool:
    """Whether an application was chosen: editors use ``UnknownApplication`` if not."""
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
