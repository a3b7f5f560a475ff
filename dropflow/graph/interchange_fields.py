"""Parameters and classes in DALiuGE's JSON: argument records to `Argument` and back, and default classes."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeGuard

from dropflow.graph.templates import Argument, Kind

__all__ = [
    "CONTAINERS",
    "LEGACY",
    "STRUCTURAL",
    "argument_of",
    "as_boolean",
    "fallback_class",
    "is_record",
    "kind_of",
    "merged",
    "record_of",
]

CONTAINERS: Mapping[str, str] = MappingProxyType(
    {
        "applicationArgs": "ApplicationArgument",
        "constraintParams": "ConstraintParameter",
        "componentParams": "ComponentParameter",
    }
)
"""Keys of a drop that hold argument records by name, and the parameter type of each."""

STRUCTURAL = frozenset(
    """
    oid uid iid lg_key rank loop_ctx proc_index humanReadableKey node island
    inputs outputs consumers producers streamingInputs streamingConsumers ports port_map
    inputPorts outputPorts inputLocalPorts outputLocalPorts
    categoryType category storage dropclass name app_name artificial origin collects reprodata mkn
    weight num_cpus input_error_threshold n_tries n_effective_inputs block_skip persist precious
    applicationArgs constraintParams componentParams fields nodeAttributes placement_axes
    Application appclass dataclass Data
    """.split()  # noqa: SIM905 - a block of words reads better than a column of quotes
)
"""Keys of a drop that are never parameters. A parameter of such a name is only in its record."""

LEGACY: Mapping[str, str] = MappingProxyType(
    {"type": "categoryType", "app": "dropclass", "dt": "category", "nm": "name"}
)
"""Old keys and the keys that replaced them. If the new key is present, the old one is an ordinary parameter."""

_KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "application": Kind.APP,
        "app": Kind.APP,
        "socket": Kind.APP,
        "data": Kind.DATA,
        "plain": Kind.DATA,
        "container": Kind.DATA,
    }
)

_CLASSES: Mapping[str, str] = MappingProxyType(
    {
        "memory": "dlg.data.drops.memory.InMemoryDROP",
        "sharedmemory": "dlg.data.drops.memory.SharedMemoryDROP",
        "pythonobject": "dlg.data.drops.memory.PythonObjectDROP",
        "file": "dlg.data.drops.file.FileDROP",
        "directory": "dlg.data.drops.directory.DirectoryDROP",
        "json": "dlg.data.drops.json_drop.JsonDROP",
        "null": "dlg.data.drops.data_base.NullDROP",
        "parameterset": "dlg.data.drops.parset_drop.ParameterSetDROP",
        "s3": "dlg.data.drops.s3_drop.S3DROP",
        "ngas": "dlg.data.drops.ngas.NgasDROP",
        "rdbms": "dlg.data.drops.rdbms.RDBMSDrop",
        "container": "dlg.data.drops.container.ContainerDROP",
        "socket": "dlg.apps.socket_listener.SocketListenerApp",
        "bashshellapp": "dlg.apps.bash_shell_app.BashShellApp",
        "docker": "dlg.apps.dockerapp.DockerApp",
        "pyfuncapp": "dlg.apps.pyfunc.PyFuncApp",
        "mpi": "dlg.apps.mpi.MPIApp",
    }
)

_RECORD_KEYS = frozenset(
    """
    id name text value defaultValue description type encoding parameterType usage options readonly precious positional
    keyAttribute
    """.split()  # noqa: SIM905 - a block of words reads better than a column of quotes
)

_TYPES: Mapping[type, str] = MappingProxyType(
    {bool: "Boolean", int: "Integer", float: "Float", str: "String", dict: "Json", list: "Json"}
)

_BOTH = "InputOutput"


def kind_of(category_type: object) -> Kind | None:
    """Return the kind of a drop by its `categoryType`, in any case and of any version; None if it is unknown."""
    return _KINDS.get(category_type.lower()) if isinstance(category_type, str) else None


def fallback_class(*hints: object) -> str:
    """Return the class for the first known one of a drop's storage, category and type; empty if none is known."""
    found = (_CLASSES.get(hint.lower()) for hint in hints if isinstance(hint, str))
    return next((name for name in found if name), "")


def as_boolean(value: object) -> bool | None:
    """Return a truth value, also from the texts and numbers of old graphs; None for other values."""
    if isinstance(value, bool | int | float):
        return bool(value)
    if isinstance(value, str):
        return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(
            value.strip().lower()
        )
    return None


def is_record(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether this has the form of an argument record, rather than being a value."""
    return isinstance(value, dict) and "value" in value and value.keys() <= _RECORD_KEYS


def record_of(argument: Argument) -> dict[str, Any]:
    """Return the argument record of an argument."""
    return {
        "id": argument.id,
        "name": argument.name,
        "value": argument.value,
        "defaultValue": argument.default,
        "description": argument.description,
        "type": argument.type,
        "encoding": argument.encoding,
        "parameterType": argument.parameter_type,
        "usage": argument.usage,
        "options": list(argument.options),
        "readonly": False,
        "precious": argument.precious,
        "positional": argument.positional,
    }


def argument_of(name: str, record: Mapping[str, Any], *, value: Any, parameter_type: str) -> Argument:
    """Return the argument of an argument record.

    Parameters
    ----------
    name : str
        Its name, which old records do not have.
    record : mapping
        The record; empty for a bare value.
    value : Any
        The value of the argument.
    parameter_type : str
        Parameter type of records without one.
    """
    options = record.get("options")
    return Argument(
        name=name,
        value=value,
        type=_text(record.get("type")) or _TYPES.get(type(value), "String"),
        encoding=_text(record.get("encoding")),
        usage=_text(record.get("usage")) or "NoPort",
        parameter_type=_text(record.get("parameterType")) or parameter_type,
        positional=as_boolean(record.get("positional")) or False,
        precious=as_boolean(record.get("precious")) or False,
        id=_text(record.get("id")),
        default=record.get("defaultValue"),
        options=tuple(map(_text, options)) if isinstance(options, list) else (),
        description=_text(record.get("description")),
    )


def _text(value: object) -> str:
    return "" if value is None else str(value)


def merged(arguments: Iterable[Argument]) -> tuple[Argument, ...]:
    """Return the arguments with unique names.

    Graphs may have a parameter and a port, or an input and an output port, of one name. The value is that of the first
    that is not a port, encoding and type are those of the first port, and the usage covers all of them.
    """
    found: dict[str, Argument] = {}
    for new in arguments:
        old = found.get(new.name)
        found[new.name] = new if old is None else _joined(old, new)
    return tuple(found.values())


def _joined(old: Argument, new: Argument) -> Argument:
    port = old if old.is_port else new
    plain = new if old.is_port and not new.is_port else old
    usages = {argument.usage for argument in (old, new) if argument.is_port}
    return Argument(
        name=old.name,
        value=plain.value,
        type=port.type,
        encoding=port.encoding or plain.encoding,
        usage=_BOTH if len(usages) > 1 else port.usage,
        parameter_type=plain.parameter_type,
        positional=plain.positional,
        precious=plain.precious,
        id=plain.id,
        default=plain.default,
        options=plain.options,
        description=plain.description,
    )
