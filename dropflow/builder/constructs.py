"""What ``with`` statements of a graph open, where a plain handle is not enough: loops, MKNs and services."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dropflow.builder.draft import DraftLink, DraftNode
from dropflow.builder.functions import as_app
from dropflow.builder.handles import CarriedValue, Data
from dropflow.errors import UsageError

if TYPE_CHECKING:
    from dropflow.builder.nodes import GraphNodes

__all__ = ["Loop", "MknContent"]


class Loop:
    """A loop that is open: its nodes run in each iteration, one after the other."""

    def __init__(self, graph: "GraphNodes", node: DraftNode) -> None:
        self._graph = graph
        self._node = node
        self._carried: list[CarriedValue] = []

    def carry(self, first: Any) -> CarriedValue:
        """Return a value that is `first` in the first iteration, and then what `again` gives.

        Raises
        ------
        UsageError
            `first` is inside the loop.
        """
        if not isinstance(first, Data):
            first = self._graph.value_in(self._node.inside, first, f"{self._node.name} begins with")
        if self._node in self._graph.drawing.path(first.node):
            raise UsageError(
                f"{first.name!r} is made in the loop, so that it cannot be what the loop begins with",
                where=self._node.name,
                hint="make it before the loop",
            )
        made = CarriedValue(first)
        self._carried.append(made)
        return made

    def again(self, carried: CarriedValue, value: Data) -> None:
        """Have the next iteration get `value` for `carried`.

        Raises
        ------
        UsageError
            `value` is not made in this loop, or `carried` has a next value already, or is of another loop.
        """
        if carried not in self._carried or carried.following is not None:
            why = "already has a next value" if carried in self._carried else "belongs to another loop"
            raise UsageError(f"the {carried!r} {why}", where=self._node.name, hint="call again() once for each carry()")
        if not isinstance(value, Data) or self._node not in self._graph.drawing.path(value.node):
            raise UsageError(
                f"{getattr(value, 'name', value)!r} is not made in the loop",
                where=self._node.name,
                hint="make it inside",
            )
        value.node.set("group_end", value=True)
        carried.following = value

    def last(self, value: Data) -> Data:
        """Return what `value` is in the last iteration, for use after the loop; also the last of a loop around it."""
        self._refuse_outside(value)
        seen = Data(value.graph, value.node, annotation=value.annotation)
        seen.loop_aware = True
        return seen

    def exited(self, value: Data) -> Data:
        """Return what `value` is in the iteration that was left through a branch, for use after the loop.

        A branch writes `value` in one iteration, and skips it in all others. A copy of it is added after the loop.
        """
        self._refuse_outside(value)
        found = self._graph.component(
            "dlg.apps.simple.CopyApp",
            inputs={"input": value},
            name=f"Leave {self._node.name}",
            settings={"block_skip": True},
        )
        assert isinstance(found, Data)  # noqa: S101 - the application has one output
        found.annotation, found.node.encoding = value.annotation, value.node.encoding
        return found

    def _refuse_outside(self, value: Data) -> None:
        if self._node not in self._graph.drawing.path(value.node):
            raise UsageError(f"{value.name!r} is not made in the loop", where=self._node.name, hint="use it as it is")

    def close(self) -> None:
        """Add the edges from each iteration to the next.

        Raises
        ------
        UsageError
            Nothing is carried, a carried value has no next value, or no function uses it.
        """
        if not self._carried:
            raise UsageError(
                "nothing goes from one iteration of the loop to the next",
                where=self._node.name,
                hint="use carry() and again() in the loop; for independent copies open a scatter",
            )
        for one in self._carried:
            if one.following is None or not one.readers:
                lacks = "no next value" if one.following is None else "no function that uses it"
                hint = "call again(carried, value) in the loop" if one.following is None else "give it to a function"
                raise UsageError(f"the {one!r} has {lacks}", where=self._node.name, hint=hint)
            for reader, port in one.readers:
                self._graph.drawing.links.append(DraftLink(one.following.node, "io", reader, port, closes_loop=True))


class MknContent:
    """An MKN that is open: M inputs are joined, K copies of its nodes work, and N outputs are written for each."""

    def __init__(self, graph: "GraphNodes", node: DraftNode) -> None:
        self._graph = graph
        self._node = node

    def enter(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Data:
        """Call a function on M inputs, and return its result, which all K copies get."""
        return self._graph.call_embedded(self._node, "input", as_app(function), args, kwargs, inside=self._node)

    def leave(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Data:
        """Call a function on what the K copies wrote, and return its result, for use after the construct."""
        return self._graph.call_embedded(self._node, "output", as_app(function), args, kwargs, inside=self._node.inside)
