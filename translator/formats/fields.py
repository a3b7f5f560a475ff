"""Fields of nodes, from files of all versions: lists of fields, of arguments and of ports.

In old files, ports are in separate lists, and arguments of applications are in `applicationArgs` and
`applicationParams`. All of them become `Field`s, in the order of the file.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from dropflow.problems import Problem, Severity
from translator.formats.json_access import Json, objects, text, truth
from translator.formats.vocabulary import PARAMETER_TYPES, USAGES
from translator.logical import Field
from translator.problem_codes import problem

__all__ = ["PORT_LISTS", "merge_ports", "read_fields", "read_ports"]

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
_LARGEST = 1e300
_SCALARS = (str, int, float, bool)


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
    found = []
    for place, raw in objects(holder, name, pointer):
        label = text(raw, "name", "text")
        if not label and _usage(raw) != "NoPort":
            label = "port"
        if not label:
            if isinstance(raw.get("name"), str) or isinstance(raw.get("text"), str):
                problems.append(_nameless(place))
            continue
        position = place.rpartition("/")[2]
        found.append(
            _field(
                raw,
                id_=text(raw, "id") or (f"{owner}/{name}/{position}"),
                label=label,
                pointer=place,
                parameter_type=parameter_type,
                problems=problems,
            )
        )
    return tuple(found)


def read_ports(holder: Json, name: str, *, pointer: str, owner: str) -> tuple[Field, ...]:
    """Return the ports in one of the `PORT_LISTS` of an old node."""
    found = []
    for place, raw in objects(holder, name, pointer):
        event = truth(raw.get("event")) is True
        found.append(
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
    return tuple(found)


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
        found = USAGES.get(text(raw, name).lower())
        if found:
            return found
    return "NoPort"


def _parameter_type(raw: Json, default: str) -> str:
    for name in ("parameterType", "fieldType"):
        found = PARAMETER_TYPES.get(text(raw, name).lower())
        if found:
            return found
    if USAGES.get(text(raw, "fieldType").lower()):
        return "ApplicationArgument"
    return default or "ComponentParameter"


def _type(value: Any) -> str:
    found = value.strip() if isinstance(value, str) else ""
    return _TYPES.get(found.lower(), found)


def _flag(raw: Json, name: str, label: str, pointer: str, problems: list[Problem]) -> bool:
    said = truth(raw.get(name))
    if said is None:
        problems.append(
            problem(
                "LG007",
                f"{name!r} of field {label!r} is {raw.get(name)!r:.60}, neither true nor false; false is used",
                where=f"{pointer}/{name}",
                hint="use true or false",
                severity=Severity.WARNING,
            )
        )
    return said is True


def _limit(raw: Json, name: str) -> float | None:
    """Return an end of the range of a value, which EAGLE does not know; None if it is no number."""
    found = raw.get(name)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return float(found) if abs(found) < _LARGEST else None


def _options(raw: Json) -> Iterator[Any]:
    found = raw.get("options")
    if isinstance(found, list):
        yield from (option for option in found if isinstance(option, _SCALARS))
