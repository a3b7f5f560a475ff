"""Parameters and classes in DALiuGE's JSON: argument records to `Argument` and back, and default classes."""

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeGuard, TypeVar

import msgspec

from dropflow.graph.templates import DEFAULT_TRIES, TWO_PORTS, Argument, Axis, Kind, Template

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
    keyAttribute twoPorts
    """.split()  # noqa: SIM905 - a block of words reads better than a column of quotes
)

_TYPES: Mapping[type, str] = MappingProxyType(
    {bool: "Boolean", int: "Integer", float: "Float", str: "String", dict: "Json", list: "Json"}
)

_LARGEST_INTEGER = 2**63
"""Magnitude from which a setting is refused: the container has 64 bits with a sign for it."""
_LARGEST_NUMBER = sys.float_info.max
_BOTH = "InputOutput"
_TWO_PORTS = "twoPorts"
"""Key of our records whose usage, `_BOTH`, stands for two ports of one name: DALiuGE has no word for these."""
Wrong = tuple[str, str, str]
"""An error: its key, what is wrong, and what to do."""
_CLASS_KEYS = {
    Kind.APP: ("dropclass", "Application", "appclass", "Application Class", "Application class"),
    Kind.DATA: ("dropclass", "Data", "dataclass", "Data class", "container"),
}
_HINTS = frozenset({"weight", "num_cpus"})
_T = TypeVar("_T")


def kind_of(category_type: object) -> Kind | None:
    """Return the kind of a drop by its `categoryType`, in any case and of any version; None if it is unknown."""
    return _KINDS.get(category_type.lower()) if isinstance(category_type, str) else None


def fallback_class(*hints: object) -> str:
    """Return the class for the first known one of a drop's storage, category and type; empty if none is known."""
    classes = (_CLASSES.get(hint.lower()) for hint in hints if isinstance(hint, str))
    return next((name for name in classes if name), "")


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
    """Return whether this has the form of an argument record, rather than being a value."""
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
        "usage": _BOTH if argument.usage == TWO_PORTS else argument.usage,
        "options": list(argument.options),
        "readonly": False,
        "precious": argument.precious,
        "positional": argument.positional,
        **({_TWO_PORTS: True} if argument.usage == TWO_PORTS else {}),
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
        usage=TWO_PORTS if record.get(_TWO_PORTS) is True else _text(record.get("usage")) or "NoPort",
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
    by_name: dict[str, Argument] = {}
    for new in arguments:
        old = by_name.get(new.name)
        by_name[new.name] = new if old is None else _joined(old, new)
    return tuple(by_name.values())


def _joined(old: Argument, new: Argument) -> Argument:
    port = old if old.is_port else new
    plain = new if old.is_port and not new.is_port else old
    usages = {argument.usage for argument in (old, new) if argument.is_port}
    return Argument(
        name=old.name,
        value=plain.value,
        type=port.type,
        encoding=port.encoding or plain.encoding,
        usage=port.usage if len(usages) == 1 else _BOTH if _BOTH in usages else TWO_PORTS,
        parameter_type=plain.parameter_type,
        positional=plain.positional,
        precious=plain.precious,
        id=plain.id,
        default=plain.default,
        options=plain.options,
        description=plain.description,
    )


# The `Template` of the drops of one node in DALiuGE's JSON.


def template_of(drop: Mapping[str, Any], oid: str) -> tuple[Template, list[Wrong]]:
    """Return the template of a drop, and its errors.

    Parameters
    ----------
    drop : mapping
        A drop without its identity and relations.
    oid : str
        Its text id, for messages, and as its name if it has none.
    """
    shared = _modern(drop)
    wrong: list[Wrong] = []
    kind = kind_of(shared.get("categoryType"))
    if kind is None:
        category = f"categoryType {shared['categoryType']!r}" if "categoryType" in shared else "no categoryType"
        wrong.append(("categoryType", f"drop {oid!r} has {category}", "it must be Application or Data"))
        kind = Kind.DATA
    component = _component(shared, kind)
    if component is None:
        hint = "name its class in dropclass, or its kind of storage in category"
        wrong.append(("dropclass", f"drop {oid!r} has no class", hint))
    read = _Settings(shared, oid, wrong)
    weight = read.number("weight", float, 1.0)
    template = Template(
        key=str(shared.get("lg_key", shared.get("name", oid))),
        name=str(shared.get("name", oid)),
        kind=kind,
        component=component or "",
        category=str(shared.get("category") or shared.get("storage") or ""),
        arguments=merged(_arguments(shared)),
        weight=_exact(weight, shared, kind),
        cpus=read.number("num_cpus", int, 1),
        error_threshold=read.number("input_error_threshold", float, 0.0),
        tries=read.number("n_tries", int, DEFAULT_TRIES),
        effective_inputs=read.number("n_effective_inputs", int, -1),
        block_skip=read.truth("block_skip") or False,
        persist=read.truth("persist" if "persist" in shared else "precious"),
        artificial=read.truth("artificial") or False,
        origin=str(shared.get("origin", "")),
        app_name=str(shared.get("app_name", "")),
        collects=read.names("collects"),
        axes=read.axes("placement_axes"),
    )
    return template, wrong


def _modern(drop: Mapping[str, Any]) -> dict[str, Any]:
    """Return the drop with old keys renamed, unless the new key is present too."""
    shared = dict(drop)
    for old, new in LEGACY.items():
        if old in shared and new not in shared:
            shared[new] = shared.pop(old)
    return shared


def _component(shared: Mapping[str, Any], kind: Kind) -> str | None:
    """Return the class of a drop: empty if its class is given as empty, None if nothing implies a class."""
    classes = [shared[key] for key in _CLASS_KEYS[kind] if isinstance(shared.get(key), str)]
    chosen = next((name for name in classes if name), "")
    if not chosen:
        chosen = fallback_class(shared.get("storage"), shared.get("category"), shared.get("categoryType"))
    if chosen.startswith("dfms."):
        chosen = "dlg." + chosen.removeprefix("dfms.")
    return chosen if chosen or classes else None


def _exact(weight: float, shared: Mapping[str, Any], kind: Kind) -> float:
    """Return the weight before it was rounded up to an integer, if its parameter is present."""
    exact = shared.get("execution_time" if kind is Kind.APP else "data_volume")
    if isinstance(exact, int | float) and not isinstance(exact, bool) and abs(exact) <= _LARGEST_NUMBER:
        return float(exact) if "weight" not in shared or math.ceil(exact) == weight else weight
    return weight


class _Settings:
    """Reads the keys that are settings of the execution.

    An application argument of that name has priority over the key, except for the two hints for the translator.
    """

    def __init__(self, shared: Mapping[str, Any], oid: str, wrong: list[Wrong]) -> None:
        self._shared = shared
        self._oid = oid
        self._wrong = wrong
        arguments = shared.get("applicationArgs")
        self._arguments = arguments if isinstance(arguments, dict) else {}

    def _raw(self, key: str) -> Any:
        record = None if key in _HINTS else self._arguments.get(key)
        return record["value"] if is_record(record) else self._shared.get(key)

    def _read(self, key: str, convert: Callable[[Any], _T | None], default: _T) -> _T:
        raw = self._raw(key)
        if raw is None or raw == "":
            return default
        try:
            converted = convert(raw)
        except (TypeError, ValueError, OverflowError):
            converted = None
        if converted is None:
            text = f"{key} of drop {self._oid!r} is {str(raw)[:60]!r}"
            self._wrong.append((key, text, f"give a {type(default).__name__}"))
            return default
        return converted

    def number(self, key: str, kind: Callable[[Any], _T], default: _T) -> _T:
        """Return a number, also from text; integers may have a fraction of zero."""

        def convert(raw: Any) -> _T | None:
            value = float(raw)
            made = kind(value)
            fits = math.isfinite(value) and not (isinstance(made, int) and abs(made) >= _LARGEST_INTEGER)
            return made if made == value and fits else None

        return self._read(key, convert, default)

    def names(self, key: str) -> tuple[str, ...]:
        """Return a list of texts; empty if the graph has none."""

        def convert(raw: Any) -> tuple[str, ...] | None:
            return tuple(raw) if isinstance(raw, list) and all(isinstance(name, str) for name in raw) else None

        return self._read(key, convert, ())

    def axes(self, key: str) -> tuple[Axis, ...]:
        """Return the index space of drops that must stay together, as dropflow writes it; empty if there is none."""
        try:
            return msgspec.convert(self._shared.get(key, ()), tuple[Axis, ...])
        except msgspec.ValidationError as error:
            text = f"{key} of drop {self._oid!r} cannot be used: {error}"
            self._wrong.append((key, text, "write construct, name, kind and size of each level, or leave it out"))
            return ()

    def truth(self, key: str) -> bool | None:
        """Return a truth value, or None if the graph has none."""
        raw = self._raw(key)
        return None if raw is None or raw == "" else self._read(key, as_boolean, default=False)


def _arguments(shared: Mapping[str, Any]) -> Iterator[Argument]:
    """Yield every parameter: those of ``fields``, then other records, then bare values."""
    settled = shared.get("applicationArgs")
    settled = settled if isinstance(settled, dict) else {}
    seen = set()
    for name, record, parameter_type in _records(shared):
        own = settled.get(name)
        if is_record(own):
            value = own["value"]
        elif name in shared and name not in STRUCTURAL and not is_record(shared[name]):
            value = shared[name]
        else:
            value = record.get("value")
        seen.add(name)
        yield argument_of(name, record, value=value, parameter_type=parameter_type)
    for name, value in shared.items():
        if name in seen or name in STRUCTURAL:
            continue
        record = value if is_record(value) else {}
        yield argument_of(
            name, record, value=record.get("value") if record else value, parameter_type="ComponentParameter"
        )


def _records(shared: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Yield (name, record, default parameter type) of all argument records, each name once."""
    fields = shared.get("fields")
    names = set()
    for record in fields if isinstance(fields, list) else ():
        if isinstance(record, dict) and isinstance(record.get("name"), str):
            names.add(record["name"])
            yield record["name"], record, "ComponentParameter"
    for container, parameter_type in {**CONTAINERS, "nodeAttributes": "ComponentParameter"}.items():
        records = shared.get(container)
        for name, record in records.items() if isinstance(records, dict) else ():
            if name not in names and isinstance(record, dict):
                names.add(name)
                yield name, record, parameter_type
