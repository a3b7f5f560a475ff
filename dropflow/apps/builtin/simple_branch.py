"""The older branch: two outputs and a constant."""

from dropflow.apps.api import App, Context, OutputData
from dropflow.engine.component import Component, Parameter, Port
from dropflow.errors import AppError
from dropflow.graph.templates import Kind

__all__ = ["FALSE_PORTS", "TRUE_PORTS", "SimpleBranch"]

TRUE_PORTS = frozenset({"true", "y", "yes"})
FALSE_PORTS = frozenset({"false", "n", "no"})


class SimpleBranch(App):
    """Chooses one of two outputs by a constant."""

    skips = True
    component = Component(
        name="SimpleBranch",
        kind=Kind.APP,
        category="Branch",
        dropclass="dlg.apps.simple.SimpleBranch",
        aliases=("dlg.apps.branch.BranchAppDrop", "dlg.apps.branch.SimpleBranch"),
        description="Chooses one of two outputs by a constant. The other output, and all that follows it, is skipped; "
        "the chosen one completes empty.",
        parameters=(Parameter(name="result", type="Boolean", default=True, description="Which output to choose."),),
        ports=(
            Port(name="true", usage="OutputPort", description="The output for a true result."),
            Port(name="false", usage="OutputPort", description="The output for a false result."),
        ),
    )

    def run(self, context: Context) -> None:
        """Skip the output that is not chosen."""
        ways = by_way(context)
        for output in ways[not self.parameters["result"]]:
            output.skip()


def by_way(context: Context) -> dict[bool, list[OutputData]]:
    """Return the outputs of an attempt by the result that chooses them.

    Ports called true or yes are for a true result, and false or no for a false one. With other names, the first output
    port of the node is for a true result, and the second for a false one.

    Raises
    ------
    AppError
        There are more than two ports with other names.
    """
    ports = [output.port for output in context.outputs]
    if {port.lower() for port in ports} <= TRUE_PORTS | FALSE_PORTS:
        truths = [port.lower() in TRUE_PORTS for port in ports]
    else:
        declared = [argument.name for argument in context.arguments.values() if argument.usage == "OutputPort"]
        order = declared if set(ports) <= set(declared) else list(dict.fromkeys(ports))
        if len(order) > 2:  # noqa: PLR2004 - true and false
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
