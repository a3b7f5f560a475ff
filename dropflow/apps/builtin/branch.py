"""The branch: a function chooses the output."""

from typing import Any, ClassVar

from dropflow.apps.app_interface import App, Context, InputData, OutputData
from dropflow.apps.builtin.copy import BUFSIZE, copy_all
from dropflow.apps.functions.function import FUNCTION_PARAMETERS, PyFuncApp, bind
from dropflow.apps.parameters import is_event
from dropflow.errors import AppError
from dropflow.graph.components import Component, Parameter, Port
from dropflow.graph.templates import Kind

TRUE_PORTS = frozenset({"true", "y", "yes"})
FALSE_PORTS = frozenset({"false", "n", "no"})
_PASSED_ON = "x"

# The older branch: two outputs and a constant.


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
        if len(order) > 2:
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


class Branch(PyFuncApp):
    """Calls a function, and passes its input on to the output that the return value names."""

    environment_fields: ClassVar[tuple[str, ...]] = ()
    skips = True
    component = Component(
        name="Branch",
        kind=Kind.APP,
        category="Branch",
        dropclass="dlg.apps.simple.Branch",
        aliases=("dlg.apps.branch.Branch",),
        description="Calls a function of the input 'x' and passes x on, unchanged, to the output port that its return "
        "value names: 'true' or 'false'. The other output, and all that follows it, is skipped. A function that "
        "returns text chooses among any number of output ports by their names.",
        parameters=(
            *(
                Parameter(
                    name=parameter.name, type=parameter.type, default="condition", description=parameter.description
                )
                if parameter.name == "func_name"
                else parameter
                for parameter in FUNCTION_PARAMETERS
            ),
            Parameter(
                name="x", type="Object", default=None, description="The value to test when no input is connected."
            ),
            BUFSIZE,
        ),
        ports=(
            Port(name="x", usage="InputPort", description="The value to test and pass on."),
            Port(name="true", usage="OutputPort", description="Gets x if the function returns true."),
            Port(name="false", usage="OutputPort", description="Gets x if the function returns false."),
        ),
    )

    def run(self, context: Context) -> None:
        """Call the function, skip the outputs it does not choose, and pass the input on to the others."""
        bound = bind(self.signature, context, self.values, self.defaults)
        answer = self.function(*bound.args, **bound.kwargs)
        winners = _winners(context, answer)
        context.log(f"the condition is {answer}")
        for output in context.outputs:
            if output not in winners:
                output.skip()
        targets = [output for output in winners if not is_event(context.arguments, output.port)]
        sources = _sources(context)
        if sources:
            copy_all(context, sources, targets, self.parameters[BUFSIZE.name])
        elif _PASSED_ON in self.values:
            for output in targets:
                output.put(self.values[_PASSED_ON], "pickle")


def _winners(context: Context, answer: Any) -> list[OutputData]:
    """Return the outputs that `answer` chooses.

    Raises
    ------
    AppError
        It chooses none: a text that is not the name of a port, or a value that is neither true nor false.
    """
    outputs = context.outputs
    text = str(answer).strip().lower()
    named = [output for output in outputs if output.port.lower() == text]
    if named:
        return named
    if isinstance(answer, str) and text not in ("true", "false"):
        ports = ", ".join(dict.fromkeys(["true", "false", *(output.port for output in outputs)]))
        raise AppError(
            f"the function returned {answer!r}, which is not an output port",
            hint=f"return one of: {ports}",
        )
    try:
        choice = text == "true" if isinstance(answer, str) else bool(answer)
    except ValueError as problem:
        raise AppError(
            f"the function returned {type(answer).__name__}, which is neither true nor false: {problem}",
            hint="return one truth value, for example with .all() or .any()",
        ) from problem
    return by_way(context)[choice]


def _sources(context: Context) -> list[InputData]:
    """Return the inputs to pass on: all at ``x``, else those at the port of the first input with data."""
    carrying = [data for data in context.inputs if data.ok and not is_event(context.arguments, data.port)]
    judged = [data for data in carrying if data.port == _PASSED_ON]
    if judged or not carrying:
        return judged
    port = carrying[0].port
    return [data for data in carrying if data.port == port] if port else carrying[:1]
