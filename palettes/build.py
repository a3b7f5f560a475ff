"""Makes the palettes from the definitions of the components.

Add a field of one component to its definition, a field of all applications to `dropflow.apps.parameters`, and one
of all data to `dropflow.data.store`; they appear here by themselves.

The output is deterministic: ids are derived from names, and there are no times. So graphs keep their ports when the
palettes are made again.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import structs

from dropflow.apps.parameters import COMMON_APP, ENVIRONMENT_PARAMETERS
from dropflow.apps.registry import APPLICATIONS, app_components, import_builtin
from dropflow.data.registry import DATA_COMPONENTS
from dropflow.data.store import IO
from dropflow.data.store import common as data_parameters
from dropflow.graph.components import Component, Parameter, Port
from dropflow.graph.templates import Kind
from dropflow.version import __version__
from palettes.eagle import EagleField, EagleFile, EagleNode, ModelData, category_type, encode, stable_id
from palettes.radio import RADIO, RadioEntry

__all__ = [
    "CONSTRUCTS",
    "EMPTY",
    "TEMPLATES",
    "ConstructEntry",
    "built_files",
    "components",
    "construct_with",
    "fields_of",
    "node_of",
    "palette",
]
TEMPLATES: tuple[str, ...] = (
    "BashShellApp",
    "DockerApp",
    "DynlibApp",
    "DynlibProcApp",
    "PyFuncApp",
    "PythonMemberFunction",
    "Branch",
)
"""Components that need code or a command to be filled in."""


# The entries of template.palette: constructs, and components that a user fills in.
#
# Components are only listed here; their classes define them. Constructs, notes, and nodes for classes of users are
# defined here, because dropflow has no class for them.


class ConstructEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A node of the palette without a component: its category, purpose and parameters.

    `name` is its name if that is not the category.
    """

    category: str
    description: str
    name: str = ""
    parameters: tuple[Parameter, ...] = ()


def _number(name: str, default: int, description: str, *, minimum: float = 1) -> Parameter:
    return Parameter(
        name=name,
        type="Integer",
        default=default,
        minimum=minimum,
        parameter_type="ConstructParameter",
        description=description,
    )


CONSTRUCTS: tuple[ConstructEntry, ...] = (
    ConstructEntry(
        category="Scatter",
        description="Runs its content once for each copy. Its input application stands before it and feeds the copies.",
        parameters=(_number("num_of_copies", 4, "Number of copies.", minimum=0),),
    ),
    ConstructEntry(
        category="Gather",
        description="Collects the copies of a scatter again, so many at a time.",
        parameters=(_number("num_of_inputs", 2, "Inputs of one collecting application; 0 for all.", minimum=0),),
    ),
    ConstructEntry(
        category="GroupBy",
        description="Groups the data of nested scatters by the index of the inner one: a corner turn.",
        parameters=(
            _number("num_of_inputs", 2, "Not used here: a group has as many inputs as the graph gives it.", minimum=0),
            Parameter(
                name="group_key",
                default="",
                parameter_type="ConstructParameter",
                description="Ids or names of the constructs to group by, separated by commas; by default the innermost "
                "scatter or group-by.",
            ),
        ),
    ),
    ConstructEntry(
        category="Loop",
        description="Runs its content so many times, one after the other. What an edge that closes the loop carries "
        "goes into the next iteration.",
        parameters=(_number("num_of_iter", 2, "Number of iterations.", minimum=0),),
    ),
    ConstructEntry(category="SubGraph", description="Groups nodes that belong together; changes nothing."),
    ConstructEntry(category="GlobalVariables", description="Its fields are values for {name} in other nodes."),
    ConstructEntry(category="Comment", description="A note for people."),
)
"""Nodes without a class."""


def _text(name: str, description: str, *, kind: str = "ApplicationArgument") -> Parameter:
    return Parameter(name=name, parameter_type=kind, description=description)


_CLASS = _text("dropclass", "Dotted name of the class.", kind="ComponentParameter")

EMPTY: tuple[ConstructEntry, ...] = (
    ConstructEntry(
        category="DALiuGEApp",
        description="An application of your own: a subclass of dropflow.App that is installed.",
        parameters=(_CLASS,),
    ),
    ConstructEntry(
        category="Data",
        description="Data of a class that you name, for example dlg.data.drops.memory.InMemoryDROP.",
        parameters=(_CLASS, _text("base_name", "Name of the class's module.", kind="ComponentParameter")),
    ),
    ConstructEntry(
        category="Mpi",
        name="MPI",
        description="A program that runs as several ranks, each a drop of its own.",
        parameters=(
            Parameter(name="dropclass", default="dlg.apps.mpi.MPIApp", parameter_type="ComponentParameter"),
            _number("num_of_procs", 1, "Number of ranks."),
            _text("command", "The program and its arguments.", kind="ComponentParameter"),
        ),
    ),
)
"""Nodes to be filled in. The user adds their ports, too."""


def components() -> tuple[Component, ...]:
    """Return every built-in component that graphs may have, applications first."""
    return (*app_components(), *DATA_COMPONENTS)


def built_files() -> dict[str, bytes]:
    """Return the bytes of the palettes by file name."""
    known = components()
    ready = [node_of(component) for component in known if component.name not in TEMPLATES]
    ready += [
        construct_with(
            component.construct, node_of(component, f"{component.construct}/{component.name}/{component.dropclass}")
        )
        for component in known
        if component.construct
    ]
    drawn = [_construct(entry) for entry in (*CONSTRUCTS, *EMPTY)]
    drawn += [node_of(component) for component in known if component.name in TEMPLATES]
    return {
        "builtin.palette": palette("builtin", "Applications and data that run as they are.", ready),
        "template.palette": palette("template", "Constructs, and components to be filled in.", drawn),
        "radio.palette": palette("radio", "Programs and libraries of radio astronomy.", [*map(_radio, RADIO)]),
    }


def palette(name: str, description: str, nodes: Sequence[EagleNode], *, of: str = "dropflow") -> bytes:
    """Return the bytes of a palette of these nodes; `of` is what they belong to."""
    about = ModelData(
        file_path=f"{name}.palette",
        file_type="Palette",
        short_description=f"{of} {name}: {description}",
        detailed_description=f"The {name} palette of {of}. {description} They are documented with {of}.",
        generator_version=__version__,
        nodes=len(nodes),
    )
    return encode(EagleFile(model_data=about, node_data_array=tuple(nodes)))


def node_of(component: Component, owner: str = "") -> EagleNode:
    """Return the node of a component. `owner` distinguishes it from others of its class, and is part of its ids."""
    return EagleNode(
        category=component.category,
        category_type=category_type(component.category),
        id=stable_id(owner or component.dropclass),
        name=component.name,
        description=component.description,
        fields=tuple(fields_of(component, owner=owner)),
    )


def _radio(entry: RadioEntry) -> EagleNode:
    """Return the component of a command or a function, with its fields and ports."""
    base = next(
        component
        for component in app_components()
        if component.name == ("PyFuncApp" if entry.function else "BashShellApp")
    )
    own = {"command": entry.command, "func_code": entry.code, "memory": entry.memory}
    if entry.function is not None:
        own["func_name"] = entry.function.__name__
    known = (*base.parameters, *(parameter for parameter in COMMON_APP if parameter.name == "memory"))
    given = tuple(structs.replace(parameter, default=own.get(parameter.name, parameter.default)) for parameter in known)
    component = structs.replace(
        base,
        name=entry.name,
        description=entry.description,
        parameters=(*given, *entry.fields),
        ports=entry.ports,
    )
    return node_of(component, f"radio/{entry.name}")


def construct_with(construct: str, node: EagleNode) -> EagleNode:
    """Return a construct that has the application of `node` as its input application."""
    entry = next(entry for entry in CONSTRUCTS if entry.category == construct)
    name = f"{construct}/{node.name}"
    return EagleNode(
        category=construct,
        category_type="Construct",
        is_group=True,
        id=stable_id(name),
        name=name,
        description=f"{entry.description} {node.description}",
        fields=tuple(_field(name, parameter) for parameter in entry.parameters),
        input_application_name=node.name,
        input_application_type=node.category,
        input_application_id=node.id,
        input_application_description=node.description,
        input_app_fields=node.fields,
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


def fields_of(component: Component, *, owner: str = "") -> Iterator[EagleField]:
    """Yield class, parameters and ports of a component. Its own parameters replace common ones of the same name."""
    whose = owner or component.dropclass
    own = {parameter.name for parameter in component.parameters}
    common = (*COMMON_APP, *_environment_fields(component)) if component.kind is Kind.APP else ()
    dropclass = Parameter(
        name="dropclass",
        default=component.dropclass,
        parameter_type="ComponentParameter",
        description="The class that does the work.",
    )
    for parameter in (dropclass, *component.parameters, *(field for field in common if field.name not in own)):
        if parameter.name not in {port.name for port in component.ports}:
            yield _field(whose, parameter)
    taken = {parameter.name: parameter for parameter in component.parameters}
    for port in component.ports:
        yield _port(whose, port, taken.get(port.name))


def _environment_fields(component: Component) -> Iterator[Parameter]:
    """Yield the parameters for the environment that a built-in application uses."""
    used = import_builtin(component.name).environment_fields if component.name in APPLICATIONS else ()
    yield from (parameter for parameter in ENVIRONMENT_PARAMETERS if parameter.name in used)


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
