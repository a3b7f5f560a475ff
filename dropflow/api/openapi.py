"""The OpenAPI 3.1 document of a route table."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from dropflow.api.error_body import ErrorBody, status_of_class
from dropflow.api.routes import Route

_VARIABLE = re.compile(r"\{(\w+)\}")
_BYTES = {"type": "string", "format": "binary"}
_REF = "#/components/schemas/{name}"


class ErrorEnvelope(msgspec.Struct, frozen=True, kw_only=True):
    """An answer with an error."""

    ok: bool
    error: ErrorBody


def openapi_document(routes: Sequence[Route], *, title: str, version: str) -> dict[str, Any]:
    """Return the description of `routes`.

    Returns
    -------
    dict
        An OpenAPI 3.1 document, JSON-like. The schemas come from the same structs that check the requests.
    """
    used = [kind for route in routes for kind in (route.query, route.body, route.answer) if kind is not None]
    types: list[type] = [*dict.fromkeys(used), ErrorEnvelope]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    by_type = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, by_type, components)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version, "license": {"name": "BSD-3-Clause"}},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "signature": {
                    "type": "http",
                    "scheme": "Dropflow",
                    "description": "HMAC-SHA256 with the cluster key, for managers: see dropflow.api.signing.",
                },
            },
        },
        "security": [{"token": []}, {"signature": []}],
    }


def _operation(route: Route, schemas: dict[type, Any], components: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": route.summary}
    if route.answer is not None:
        envelope = {"type": "object", "properties": {"ok": {"const": True}}, "required": ["ok"]}
        answer["content"] = {"application/json": {"schema": {"allOf": [envelope, schemas[route.answer]]}}}
    elif route.gives:
        answer["content"] = {route.gives: {"schema": _BYTES}}
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": f"{route.method.lower()}{re.sub(r'[^A-Za-z0-9]+', '_', route.path)}".rstrip("_"),
        "tags": [route.tag],
        "parameters": [
            *(
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in _VARIABLE.findall(route.path)
            ),
            *_query_parameters(route, components),
        ],
        "responses": {str(route.status): answer, **_error_responses(route, schemas[ErrorEnvelope])},
    }
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schemas[route.body]}}}
    elif route.takes:
        operation["requestBody"] = {"required": True, "content": {route.takes: {"schema": _BYTES}}}
    if route.public:
        operation["security"] = []
    return operation


def _error_responses(route: Route, schema: dict[str, Any]) -> dict[str, Any]:
    """Return a response for each status of the route's errors, and the default one."""
    kinds: dict[str, list[str]] = {}
    for error in route.errors:
        kinds.setdefault(str(status_of_class(error)), []).append(error.__name__)
    texts = {status: ", ".join(names) for status, names in sorted(kinds.items())}
    texts["default"] = "Refused: what is wrong, where, and what to do."
    content = {"application/json": {"schema": schema}}
    return {status: {"description": text, "content": content} for status, text in texts.items()}


def _query_parameters(route: Route, components: dict[str, Any]) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    schema = components[route.query.__name__]
    required = schema.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": kind}
        for name, kind in schema["properties"].items()
    ]
