"""The entries of template.palette: constructs, and components that a user fills in.

Those that run have a definition elsewhere and only appear here; constructs and notes are defined here, since no class
stands behind them.
"""

import msgspec

from dropflow.engine.component import Parameter

__all__ = ["CONSTRUCTS", "TEMPLATES", "ConstructEntry"]


class ConstructEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A node of the palette that is no component: its category, what it is for, and its parameters."""

    category: str
    description: str
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
            Parameter(
                name="group_key",
                default="",
                parameter_type="ConstructParameter",
                description="Ids or names of the scatters to group by, separated by commas; by default the innermost.",
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

TEMPLATES: tuple[str, ...] = ("BashShellApp", "PyFuncApp", "PythonMemberFunction", "Branch")
"""Components that mean nothing until their code or command is filled in."""
