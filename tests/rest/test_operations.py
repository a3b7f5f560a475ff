"""The table of operations agrees with the protocol of managers, the client, the routes and the reference."""

import inspect
import re
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest

from dropflow.api.client import Client
from dropflow.api.contents import Download
from dropflow.api.openapi import StreamSlots, openapi_document
from dropflow.api.operations import OPERATIONS, Operation
from dropflow.graph.physical import PhysicalGraph
from dropflow.testing.fake_manager import FakeManager
from dropflow.web.tickets import TICKET
from managers.api import Manager
from managers.routes.handlers import api_v1_routes

_REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "rest.md"
_MANAGER = [operation for operation in OPERATIONS if operation.for_managers]
_OWN_TYPE = {"graph"}
"""Operations whose download is decoded into a graph."""


def _names(operations: list[Operation[object]]) -> set[str]:
    return {name for operation in operations for name in (operation.name, operation.also) if name}


def _methods(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


def _returned(operation: Operation[object]) -> Any:
    """Return the type that the method of an operation returns."""
    if operation.field:
        return get_type_hints(operation.answer)[operation.field]
    return None if operation.answer.__name__ == "Done" else operation.answer


def test_the_protocol_has_exactly_the_operations() -> None:
    """Every operation for managers is a method of `managers.api.Manager`, and every method but `close` is one."""
    assert _methods(Manager) - {"close"} == _names(_MANAGER)


def test_the_client_has_exactly_the_operations() -> None:
    """The client has a method for every operation, and besides only those of the connection."""
    assert _methods(Client) - {"close", "call", "download", "within"} == _names(list(OPERATIONS))


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


def test_the_reference_names_every_operation() -> None:
    """The table of our own paths in the reference has each verb and path of the operations, and no other."""
    rows = re.findall(
        r"^\| ([A-Z]+) \| `(/(?:api/v1/|ready)[^`]*)`", _REFERENCE.read_text(encoding="utf-8"), re.MULTILINE
    )

    assert set(rows) == {(operation.method, operation.path) for operation in (*OPERATIONS, TICKET)}


def test_records_are_json() -> None:
    """Answers that are not downloads, queries and bodies are structs."""
    for operation in OPERATIONS:
        for kind in (operation.query, operation.body, None if operation.answer is Download else operation.answer):
            assert kind is None or issubclass(kind, msgspec.Struct)
