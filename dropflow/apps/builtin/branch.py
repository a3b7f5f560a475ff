"""The branch: a function chooses the output."""

from typing import Any

from dropflow.apps.api import Context, InputData, OutputData
from dropflow.apps.builtin.copy import BUFSIZE, copy_all
from dropflow.apps.builtin.simple_branch import by_way
from dropflow.apps.function import FUNCTION_PARAMETERS, PyFuncApp
from dropflow.apps.function_arguments import bind, is_event
from dropflow.engine.component import Component, Parameter, Port
from dropflow.errors import AppError
from dropflow.graph.templates import Kind

__all__ = ["Branch"]

_PASSED_ON = "x"


class Branch(PyFuncApp):
    """Calls a function, and passes its input on to the output that the return value names."""

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
    """The outputs that `answer` chooses.

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
        ports = ", ".join(dict.fromkeys(output.port for output in outputs))
        raise AppError(
            f"the function returned {answer!r}, which is not an output port",
            hint=f"return true, false or one of: {ports}",
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
