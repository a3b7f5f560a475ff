"""The older branch: two outputs and a constant."""

from collections.abc import Sequence

from dropflow.apps.api import App, Context, OutputData
from dropflow.engine.component import Component, Parameter, Port
from dropflow.errors import AppError
from dropflow.graph.templates import Kind

__all__ = ["FALSE_PORTS", "TRUE_PORTS", "SimpleBranch"]

TRUE_PORTS = frozenset({"true", "y", "yes"})
FALSE_PORTS = frozenset({"false", "n", "no"})


class SimpleBranch(App):
    """Takes one of two ways."""

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
        ways = by_way(context.outputs)
        for output in ways[not self.parameters["result"]]:
            output.skip()


def by_way(outputs: Sequence[OutputData]) -> dict[bool, list[OutputData]]:
    """`outputs` by the way they belong to: by the names of their ports, else the first true and the second false.

    Raises
    ------
    AppError
        Names say nothing, and there are not exactly two outputs.
    """
    named = {output.port.lower() for output in outputs}
    if named and named <= TRUE_PORTS | FALSE_PORTS:
        return {
            True: [output for output in outputs if output.port.lower() in TRUE_PORTS],
            False: [output for output in outputs if output.port.lower() in FALSE_PORTS],
        }
    if len(outputs) != 2:  # noqa: PLR2004 - a branch has two ways
        raise AppError(
            f"{len(outputs)} outputs at ports {sorted(named)}: which is true and which is false?",
            hint="name its output ports 'true' and 'false'",
        )
    return {True: [outputs[0]], False: [outputs[1]]}
