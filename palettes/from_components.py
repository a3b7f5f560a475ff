"""Makes the palettes and the reference page of components from the definitions of the components.

Add a field of one component to its definition, a field of all applications to `dropflow.apps.app_parameters`, and one
of all data to `dropflow.data.data_parameters`; they appear here by themselves.

The output is deterministic: ids are derived from names, and there are no times. So graphs keep their ports when the
palettes are made again.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from dropflow.apps.app_parameters import COMMON_APP
from dropflow.apps.registry import app_components
from dropflow.data.data_parameters import IO
from dropflow.data.data_parameters import common as data_parameters
from dropflow.data.registry import DATA_COMPONENTS
from dropflow.engine.component import Component, Parameter, Port
from dropflow.graph.templates import Kind
from dropflow.version import __version__
from palettes.construct_entries import CONSTRUCTS, EMPTY, TEMPLATES, ConstructEntry
from palettes.eagle_records import EagleField, EagleFile, EagleNode, ModelData, category_type, encode, stable_id

__all__ = ["built_files", "component_page", "components"]


def components() -> tuple[Component, ...]:
    """Return every built-in component that graphs may have, applications first."""
    return (*app_components(), *DATA_COMPONENTS)


def built_files() -> dict[str, bytes]:
    """Return the bytes of the palettes by file name."""
    known = components()
    ready = [_node(component) for component in known if component.name not in TEMPLATES]
    ready += [_construct_with(component) for component in known if component.construct]
    drawn = [_construct(entry) for entry in (*CONSTRUCTS, *EMPTY)]
    drawn += [_node(component) for component in known if component.name in TEMPLATES]
    return {
        "builtin.palette": _palette("builtin", "Applications and data that run as they are.", ready),
        "template.palette": _palette("template", "Constructs, and components to be filled in.", drawn),
    }


def _palette(name: str, description: str, nodes: list[EagleNode]) -> bytes:
    about = ModelData(
        file_path=f"{name}.palette",
        file_type="Palette",
        short_description=f"dropflow {name}: {description}",
        detailed_description=f"The {name} palette of dropflow. {description} They are documented with dropflow.",
        generator_version=__version__,
        nodes=len(nodes),
    )
    return encode(EagleFile(model_data=about, node_data_array=tuple(nodes)))


def _node(component: Component) -> EagleNode:
    return EagleNode(
        category=component.category,
        category_type=category_type(component.category),
        id=stable_id(component.dropclass),
        name=component.name,
        description=component.description,
        fields=tuple(_fields(component)),
    )


def _construct_with(component: Component) -> EagleNode:
    """A construct that has `component` as its input application."""
    entry = next(entry for entry in CONSTRUCTS if entry.category == component.construct)
    name = f"{entry.category}/{component.name}"
    parameters = {parameter.name: parameter for parameter in entry.parameters}
    return EagleNode(
        category=entry.category,
        category_type="Construct",
        is_group=True,
        id=stable_id(name),
        name=name,
        description=f"{entry.description} {component.description}",
        fields=tuple(_field(name, parameter) for parameter in parameters.values()),
        input_application_name=component.name,
        input_application_type=component.category,
        input_application_id=stable_id(name, component.dropclass),
        input_application_description=component.description,
        input_app_fields=tuple(_fields(component, owner=f"{name}/{component.dropclass}")),
    )


def _construct(entry: ConstructEntry) -> EagleNode:
    owner = f"template/{entry.category}"
    kind = category_type(entry.category)
    parameters = list(entry.parameters)
    if kind == "Application":
        parameters += COMMON_APP
    elif kind == "Data":
        parameters += data_parameters(persists=True)
    return EagleNode(
        category=entry.category,
        category_type=kind,
        is_group=kind == "Construct",
        id=stable_id("template", entry.category),
        name=entry.name or entry.category,
        description=entry.description,
        fields=(
            *(_field(owner, parameter) for parameter in parameters),
            *((_port(owner, port, None) for port in IO) if kind == "Data" else ()),
        ),
    )


def _fields(component: Component, *, owner: str = "") -> Iterator[EagleField]:
    """Yield class, parameters and ports of a component. Its own parameters replace common ones of the same name."""
    whose = owner or component.dropclass
    own = {parameter.name for parameter in component.parameters}
    common = COMMON_APP if component.kind is Kind.APP else ()
    dropclass = Parameter(
        name="dropclass",
        default=component.dropclass,
        parameter_type="ComponentParameter",
        description="The class that does the work.",
    )
    for parameter in (dropclass, *component.parameters, *(item for item in common if item.name not in own)):
        if parameter.name not in {port.name for port in component.ports}:
            yield _field(whose, parameter)
    taken = {parameter.name: parameter for parameter in component.parameters}
    for port in component.ports:
        yield _port(whose, port, taken.get(port.name))


def _field(owner: str, parameter: Parameter) -> EagleField:
    default = _plain(parameter.default)
    return EagleField(
        name=parameter.name,
        value=default,
        default_value=default,
        description=parameter.description,
        readonly=parameter.name == "dropclass" and default != "",  # a given class must not be changed
        type=parameter.type,
        options=parameter.options,
        id=stable_id(owner, parameter.name),
        parameter_type=parameter.parameter_type,
    )


def _port(owner: str, port: Port, parameter: Parameter | None) -> EagleField:
    default = "" if parameter is None else _plain(parameter.default)
    return EagleField(
        name=port.name,
        value=default,
        default_value=default,
        description=port.description,
        type=port.type if parameter is None else parameter.type,
        encoding=port.encoding,
        id=stable_id(owner, "port", port.usage, port.name),
        parameter_type="ApplicationArgument",
        usage=port.usage,
    )


def _plain(value: Any) -> Any:
    """Return a default as EAGLE stores it: JSON, and an empty text for None."""
    return "" if value is None else value


def component_page() -> str:
    """Return the reference of all components as Markdown."""
    lines = [
        "# Components",
        "",
        "Every built-in application and data class. This page is made from their definitions by",
        "`dropflow palette build --docs docs/reference/components.md`, and so are the palettes for EAGLE,",
        "`palettes/builtin.palette` and `palettes/template.palette`.",
        "",
        "Every application takes these parameters, beside its own:",
        "",
        *_table(COMMON_APP),
    ]
    for title, kind in (("Applications", Kind.APP), ("Data", Kind.DATA)):
        lines += ["", f"## {title}"]
        for component in components():
            if component.kind is kind:
                lines += ["", *_section(component)]
    return "\n".join(lines) + "\n"


def _section(component: Component) -> Iterator[str]:
    yield f"### {component.name}"
    yield ""
    yield f"`{component.dropclass}`, category `{component.category}`"
    yield ""
    yield component.description
    if component.aliases:
        yield ""
        yield f"Also known as {', '.join(f'`{alias}`' for alias in component.aliases)}."
    if component.parameters:
        yield ""
        yield from _table(component.parameters)
    if component.ports:
        yield ""
        yield "| port | direction | encoding | |"
        yield "|---|---|---|---|"
        for port in component.ports:
            direction = {"InputPort": "in", "OutputPort": "out"}.get(port.usage, "in and out")
            yield f"| `{port.name}` | {direction} | {port.encoding} | {port.description} |"


def _table(parameters: Iterable[Parameter]) -> Iterator[str]:
    yield "| parameter | type | default | |"
    yield "|---|---|---|---|"
    for parameter in parameters:
        default = "" if parameter.default in ("", None) else f"`{parameter.default}`"
        options = f" One of {', '.join(parameter.options)}." if parameter.options else ""
        yield f"| `{parameter.name}` | {parameter.type} | {default} | {parameter.description}{options} |"
