"""Objects in a graph: constructors and member functions.

A constructor (``func_name`` ends with ``__init__`` or names a class) puts the new object on its port ``self``. A bare
``__init__``, or the bare name of a class, means the class that ``base_name`` names. A member function takes the object
from its port ``self`` and is called on it. The object, as the call left it, goes to the output port ``self`` if there
is one; the return value goes to the other outputs. If the class of an object cannot be imported it is pickled by value,
so classes defined in ``func_code`` work.
"""

from collections.abc import Callable, Collection
from typing import Any

from dropflow.apps.api import Context
from dropflow.apps.function import FUNCTION_PARAMETERS, PyFuncApp, deliver
from dropflow.apps.function_arguments import Bound, Signature, bind
from dropflow.apps.missing_inputs import describe_state
from dropflow.engine.component import Component, Parameter, Port
from dropflow.errors import AppError
from dropflow.graph.templates import Kind, Template
from dropflow.states import DropState

__all__ = ["SELF", "PythonMemberFunction"]

SELF = "self"
_ENCODING = "dill"
_SHOWN = 5


class PythonMemberFunction(PyFuncApp):
    """Calls a constructor, or a member function of an object."""

    component = Component(
        name="PythonMemberFunction",
        kind=Kind.APP,
        category="PythonMemberFunction",
        dropclass="dlg.apps.pyfunc.PyMemberApp",
        aliases=("dlg.apps.simple.PyMemberApp",),
        description="Calls a constructor, which gives its object to the port 'self', or a member function of the "
        "object that comes in at that port.",
        parameters=(
            *FUNCTION_PARAMETERS,
            Parameter(
                name="base_name", parameter_type="ComponentParameter", description="Dotted name of the object's class."
            ),
        ),
        ports=(
            Port(name=SELF, usage="InputOutput", type="Object.self", encoding=_ENCODING, description="The object."),
        ),
    )

    def __init__(self, template: Template) -> None:
        super().__init__(template)
        base = str(self.parameters["base_name"]).strip()
        if base and self.function_name in ("__init__", base.rpartition(".")[2]):
            self.function_name = f"{base}.__init__"  # the constructor of the class in base_name

    def check(self) -> None:
        """Raise if a constructor certainly does not exist. Members are looked up on the object at run time."""
        if self.function_name.endswith("__init__"):
            super().check()

    def check_ports(self, inputs: Collection[str], outputs: Collection[str], *, is_certain: bool) -> None:  # noqa: ARG002
        """Raise if an encoding does not exist. Arguments of a member are known only at run time."""
        self.refuse_encodings(inputs, outputs)

    def run(self, context: Context) -> None:
        """Call the function, and write the return value and the object to their outputs."""
        objects = [data for data in context.inputs if data.port == SELF and data.state is not DropState.SKIPPED]
        if len(objects) > 1:
            names = ", ".join(data.name or data.oid for data in objects[:_SHOWN])
            raise AppError(
                f"{len(objects)} objects come in at port 'self', which takes one: {names}",
                hint="connect one object, or collect the objects at a port named after an argument of the function",
            )
        data = objects[0] if objects else context.input(SELF)
        if data is None:
            function = self.function
            bound = bind(self.signature, context, self.values, self.defaults)
            _deliver(context, function(*bound.args, **bound.kwargs), None, bound)
            return
        if not data.ok:
            raise AppError(f"the object at port 'self' is missing: '{data.name}' {describe_state(data.state)}")
        target = data.value()
        method = self._method(target)
        bound = bind(Signature(method), context, self.values, self.defaults, without=(SELF,))
        _deliver(context, method(*bound.args, **bound.kwargs), target, bound)

    def _method(self, target: Any) -> Callable[..., Any]:
        """Return the member of `target` by its name, so that subclasses and code in the graph work."""
        name = self.function_name.rpartition(".")[2]
        method = getattr(target, name, None)
        if not callable(method):
            members = ", ".join(member for member in dir(target) if not member.startswith("_"))
            raise AppError(
                f"the object at port 'self' is a {type(target).__name__} and has no member function '{name}'",
                hint=f"it has {members[:300] or 'none'}",
            )
        found: Callable[..., Any] = method
        return found


def _deliver(context: Context, value: Any, target: Any, bound: Bound) -> None:
    """Write the object to outputs at ``self``, and `value` to the others."""
    others = [output for output in context.outputs if output.port != SELF]
    for output in context.outputs:
        if output.port == SELF:
            output.put(value if target is None else target, _ENCODING)
    deliver(context, value, bound, outputs=others)
