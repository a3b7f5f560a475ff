"""The older branch: two outputs and a constant."""

from dropflow.apps.api import App, Context, OutputData
from dropflow.engine.component import Component, Parameter, Port
from dropflow.errors import AppError
from dropflow.graph.templates import Kind

__all__ = ["FALSE_PORTS", "TRUE_PORTS", "SimpleBranch"]

TRUE_PORTS = frozenset({"true", "y", "yes"})
FALSE_PORTS = frozenset({"false", "n", "no"})


class SimpleBranch(App):
    """Takes one of two ways."""

    skips = True
    component = Component(
        name="SimpleBranch",
        kind=Kind.APP,
        category="Branch",
        dropclass="dlg.apps.simple.SimpleBranch",
        aliases=("dlg.apps.branch.BranchAppDrop", "dlg.apps.branch.SimpleBranch"),
        description="Goes one of two ways by a constant: the outputs of the other way, and all that follows them, are "
        "skipped. The outputs of its way complete empty.",
        parameters=(Parameter(name="result", type="Boolean", default=True, description="Which way to take."),),
        ports=(
            Port(name="true", usage="OutputPort", description="The way of a true result."),
            Port(name="false", usage="OutputPort", description="The way of a false result."),
        ),
    )

    def run(self, context: Context) -> None:
        """Skip the outputs of the other way."""
        ways = by_way(context)
        for output in ways[not self.parameters["result"]]:
            output.skip()


def by_way(context: Context) -> dict[bool, list[OutputData]]:
    """The outputs of an attempt by the way they belong to.

    Ports called true or yes and false or no say it; otherwise the first output port of the node is the way of a true
    result and the second that of a false one.

    Raises
    ------
    AppError
        Names say nothing, and there are more than two ports.
    """
    ports = [output.port for output in context.outputs]
    if {port.lower() for port in ports} <= TRUE_PORTS | FALSE_PORTS:
        truths = [port.lower() in TRUE_PORTS for port in ports]
    else:
        declared = [argument.name for argument in context.arguments.values() if argument.usage == "OutputPort"]
        order = declared if set(ports) <= set(declared) else list(dict.fromkeys(ports))
        if len(order) > 2:  # noqa: PLR2004 - a branch has two ways
            raise AppError(
                f"{len(order)} output ports, {', '.join(order)}: which is true and which is false?",
                hint="name its output ports 'true' and 'false'",
            )
        truths = (
            [order.index(port) == 0 for port in ports] if any(ports) else [not place for place in range(len(ports))]
        )
    ways: dict[bool, list[OutputData]] = {True: [], False: []}
    for truth, output in zip(truths, context.outputs, strict=True):
        ways[truth].append(output)
    return ways
