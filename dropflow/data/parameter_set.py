"""Parameter set drops: the parameters of the node as a configuration for a program.

Modes and their content:

``YANDA``
    ``name=value`` on each line, as parameter sets of ASKAP and LOFAR.
``json``, ``yaml``, ``toml``, ``ini``, ``pickle``
    for each name its ``value``, ``description``, ``type`` and ``default``.

Names with dots are kept whole. YAML is written in its JSON-compatible subset, so no YAML package is needed.
"""

import io
import json
import math
import pickle
from collections.abc import Callable, Mapping
from typing import Any

from dropflow.data.file_names import is_blank
from dropflow.data.memory import MemoryStore
from dropflow.data.store import Slot, common
from dropflow.execution.content_location import Handle
from dropflow.files import PICKLE_PROTOCOL
from dropflow.graph.components import Component, Parameter, Port, fold, read
from dropflow.graph.templates import Argument, Kind, Template

PARAMETER_SET = Component(
    name="ParameterSet",
    kind=Kind.DATA,
    category="ParameterSet",
    dropclass="dlg.data.drops.parset_drop.ParameterSetDROP",
    aliases=("dlg.data.drops.ParameterSetDROP", "dlg.drop.ParameterSetDROP"),
    description="The node's own parameters as a configuration file, in one of six formats.",
    parameters=(
        Parameter(
            name="mode",
            type="Select",
            default="yaml",
            options=("ini", "yaml", "json", "toml", "YANDA", "pickle"),
            description="Format of the content.",
        ),
        Parameter(name="config_data", description="The whole content, in place of the node's parameters."),
        *common(persists=False),
    ),
    ports=(Port(name="io", usage="OutputPort", description="Data for consumers."),),
)

_STRUCTURE = frozenset(
    fold(name)
    for name in (
        *(parameter.name for parameter in PARAMETER_SET.parameters),
        "dropclass", "base_name", "log_level", "data_class", "precious",
    )
)  # fmt: skip

Record = dict[str, Any]


class ParameterSetStore(MemoryStore):
    """The parameters of one template, written out."""

    def __init__(self, template: Template) -> None:
        super().__init__(template)
        values = read(PARAMETER_SET, template)
        self._mode = str(values["mode"])
        self._verbatim = "" if is_blank(values["config_data"]) else str(values["config_data"])

    def check_initial(self) -> None:
        """Accept all parameters."""

    def initial(self, slot: Slot) -> Handle:
        """Return the configuration."""
        body = self._verbatim.encode() or _FORMATS[self._mode](_settings(self._template))
        part = self.part(slot)
        part.write(body, text=self._mode != "pickle")
        return part.finish()


def _settings(template: Template) -> Mapping[str, Argument]:
    return {
        argument.name: argument
        for argument in template.arguments
        if not argument.is_port and fold(argument.name) not in _STRUCTURE
    }


def _records(settings: Mapping[str, Argument]) -> dict[str, Record]:
    return {
        name: {
            "value": argument.value,
            "description": argument.description,
            "type": argument.type,
            "default": argument.default,
        }
        for name, argument in settings.items()
    }


def _yanda(settings: Mapping[str, Argument]) -> bytes:
    return "".join(f"{name}={_plain(argument.value)}\n" for name, argument in settings.items()).encode()


def _plain(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _json(settings: Mapping[str, Argument]) -> bytes:
    return (json.dumps(_records(settings), indent=2, ensure_ascii=False) + "\n").encode()


def _yaml(settings: Mapping[str, Argument]) -> bytes:
    lines = []
    for name, record in _records(settings).items():
        lines.append(f"{json.dumps(name, ensure_ascii=False)}:\n")
        lines += [f"  {key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in record.items()]
    return "".join(lines).encode() or b"{}\n"


def _toml(settings: Mapping[str, Argument]) -> bytes:
    blocks = []
    for name, record in _records(settings).items():
        # TOML has no null: missing values are left out.
        lines = [f"{key} = {_toml_value(value)}\n" for key, value in record.items() if value is not None]
        blocks.append(f"[{_toml_value(name)}]\n{''.join(lines)}")
    return "\n".join(blocks).encode()


def _toml_value(value: Any) -> str:
    """Return a value as TOML has it: scalars and lists of them; a value with an object or null is its JSON text."""
    if not _is_toml(value):
        value = json.dumps(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    # Escapes of halves of characters, and DEL, are legal in JSON only.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _is_toml(value: Any) -> bool:
    return all(map(_is_toml, value)) if isinstance(value, list) else isinstance(value, str | bool | int | float)


def _ini(settings: Mapping[str, Argument]) -> bytes:
    import configparser  # noqa: PLC0415 - for one of the formats

    parser = configparser.ConfigParser(interpolation=None)
    for name, record in _records(settings).items():
        parser[name] = {key: _plain(value).replace("\n", "\n\t") for key, value in record.items()}
    stream = io.StringIO()
    parser.write(stream)
    return stream.getvalue().encode()


def _pickle(settings: Mapping[str, Argument]) -> bytes:
    return pickle.dumps(_records(settings), protocol=PICKLE_PROTOCOL)


_FORMATS: Mapping[str, Callable[[Mapping[str, Argument]], bytes]] = {
    "ini": _ini,
    "yaml": _yaml,
    "json": _json,
    "toml": _toml,
    "YANDA": _yanda,
    "pickle": _pickle,
}
