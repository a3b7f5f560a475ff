"""The table of operations agrees with the methods of managers, the client and the routes."""

import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest

from dropflow.api.client import Client
from dropflow.api.contents_answer import (
    Download,
)
from dropflow.api.manager import Manager
from dropflow.api.openapi import openapi_document
from dropflow.api.operations import OPERATIONS, WATCH, Operation
from dropflow.api.routes import StreamSlots
from dropflow.graph.physical import PhysicalGraph
from managers.composite.log_merging import MERGES
from managers.composite.manager import Composite
from managers.machine_calls import CallId
from managers.node.manager import NodeManager
from managers.routes.handlers import api_v1_routes
from tests.fake_manager import FakeManager

_MANAGER = [operation for operation in (*OPERATIONS, WATCH) if operation.to != "server"]
_OWN_TYPE = {"graph"}
"""Operations whose download is decoded into a graph."""


def _names(operations: list[Operation[object]]) -> set[str]:
    return {operation.name for operation in operations}


def _methods(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


def _returned(operation: Operation[object]) -> Any:
    """Return the type that the method of an operation returns."""
    if operation.field:
        return get_type_hints(operation.answer)[operation.field]
    return None if operation.answer.__name__ == "Done" else operation.answer


def test_a_manager_has_exactly_the_operations() -> None:
    """Every operation for managers is a method of `Manager`, and every other method carries one out or ends it."""
    assert _methods(Manager) - {"call", "close"} == _names(_MANAGER)


def test_the_client_has_exactly_the_operations() -> None:
    """The client has a method for every operation, and besides only those of the connection."""
    assert _methods(Client) - {"close", "call", "within"} == _names([*OPERATIONS, WATCH])


@pytest.mark.parametrize("operation", _MANAGER, ids=lambda operation: operation.name)
@pytest.mark.parametrize("kind", [Manager, Client, FakeManager], ids=lambda kind: kind.__name__)
def test_methods_have_the_types_of_the_table(kind: type, operation: Operation[object]) -> None:
    """A method takes the variables of the path and returns the type that the table names."""
    method = getattr(kind, operation.name)
    names = [name for name in inspect.signature(method).parameters if name != "self"]
    # The client imports the graph only when it reads or writes one.
    returned = get_type_hints(method, localns={"PhysicalGraph": PhysicalGraph})["return"]

    if operation.name != "prepare":  # the deployment of `prepare` has the name of the session
        assert tuple(names[: len(operation.variables)]) == operation.variables
    if operation.name not in _OWN_TYPE:
        assert returned == (type(None) if _returned(operation) is None else _returned(operation))


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_routes_and_openapi_derive_from_the_table(operation: Operation[object]) -> None:
    """There is one route for each operation, with its query, body, answer and errors; OpenAPI describes it."""
    routes = api_v1_routes(FakeManager(), StreamSlots(1))
    (route,) = [route for route in routes if (route.method, route.path) == (operation.method, operation.path)]
    described = openapi_document(routes, title="t", version="0")["paths"][operation.path][operation.method.lower()]

    assert (route.query, route.body, route.public) == (operation.query, operation.body, operation.public)
    assert route.answer == (None if operation.answer is Download else operation.answer)
    assert described["summary"] == operation.summary
    assert {str(operation.status), "default"} <= set(described["responses"])


def test_a_node_carries_out_every_operation(tmp_path: Path) -> None:
    """There is a handler for each, or the state machine of the node has it; it takes what `Manager` gives."""
    node = NodeManager("n", root=tmp_path, runner="threads", workers=1)
    try:
        called = {name: partial(one, CallId(1), 0.0) for name, one in node._machine.operations.items()}
        _refuse_other_arguments(called | node._handlers)
    finally:
        node.close()


def test_an_island_carries_out_every_operation() -> None:
    """There is a handler for each, or the state machine has it; answers of all children have a way to be merged."""
    island = Composite("i", "island", connect=lambda _: FakeManager())

    _refuse_other_arguments({**island._machine.operations, **island._handlers})
    assert set(MERGES) == {operation.name for operation in OPERATIONS if operation.to == "all"}


def _refuse_other_arguments(handlers: dict[str, Callable[..., object]]) -> None:
    """Fail if there is no handler for an operation, or it does not take the arguments of the method of `Manager`."""
    for operation in _MANAGER:
        names = [name for name in inspect.signature(getattr(Manager, operation.name)).parameters if name != "self"]
        try:
            inspect.signature(handlers[operation.name]).bind(**dict.fromkeys(names))
        except TypeError as error:
            pytest.fail(f"{operation.name}: {error}")


def test_records_are_json() -> None:
    """Answers that are not downloads, queries and bodies are structs."""
    for operation in OPERATIONS:
        for kind in (operation.query, operation.body, None if operation.answer is Download else operation.answer):
            assert kind is None or issubclass(kind, msgspec.Struct)
