"""The entries of template.palette: constructs, and components that a user fills in.

Components are only listed here; their classes define them. Constructs, notes, and nodes for classes of users are
defined here, because dropflow has no class for them.
"""

import msgspec

from dropflow.engine.component import Parameter

__all__ = ["CONSTRUCTS", "EMPTY", "TEMPLATES", "ConstructEntry"]


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
_NOT_YET = "Graphs with it can be checked and unrolled; this version of dropflow does not run it."

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
    ConstructEntry(
        category="Docker",
        description=f"A command in a container. {_NOT_YET}",
        parameters=(
            Parameter(name="dropclass", default="dlg.apps.dockerapp.DockerApp", parameter_type="ComponentParameter"),
            _text("image", "Name of the image."),
            _text("command", "The command."),
        ),
    ),
    ConstructEntry(
        category="DynlibApp",
        description=f"A function of a shared library. {_NOT_YET}",
        parameters=(
            Parameter(name="dropclass", default="dlg.apps.dynlib.DynlibApp", parameter_type="ComponentParameter"),
            _text("libpath", "Path of the library."),
        ),
    ),
    ConstructEntry(
        category="DynlibProcApp",
        description=f"A function of a shared library, in a process of its own. {_NOT_YET}",
        parameters=(
            Parameter(name="dropclass", default="dlg.apps.dynlib.DynlibProcApp", parameter_type="ComponentParameter"),
            _text("libpath", "Path of the library."),
        ),
    ),
)
"""Nodes to be filled in. The user adds their ports, too."""

TEMPLATES: tuple[str, ...] = ("BashShellApp", "PyFuncApp", "PythonMemberFunction", "Branch")
"""Components that need code or a command to be filled in."""
