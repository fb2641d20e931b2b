"""The OpenAPI document of operations, from the types of their queries and answers. Pure."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from agent.http import examples, schemas
from agent.http.probes import JSON
from agent.http.queries import NoQuery
from agent.http.rooms import Rooms

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class Operation:
    """A GET of `path`, as Starlette writes it. `missing` says what a 404 means.

    `answer` is the type of what `respond` returns; None for a probe, whose query is ignored. `query` has a field for
    each parameter, in the path or after it.
    """

    path: str
    name: str
    summary: str
    respond: Callable[[Rooms, Any], object]
    answer: Any = None
    query: type[msgspec.Struct] = NoQuery
    missing: str = ""


def document(about: Schema, operations: Sequence[Operation]) -> dict[str, Any]:
    described = [operation for operation in operations if operation.answer is not None]
    types = (schemas.ProblemSchema, *(one.query for one in described), *(one.answer for one in described))
    (problem, *shapes), components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    parameters = {one: components.pop(one.__name__) for one in {one.query for one in described}}
    answers = dict(zip((one.name for one in described), shapes[len(described) :], strict=True))
    paths = {}
    for one in operations:
        path = one.path.replace(":path}", "}")
        said: dict[str, Any] = {
            "operationId": one.name,
            "summary": one.summary,
            "description": inspect.getdoc(one.respond) or "",
        }
        if one.answer is None:
            said |= {"responses": {"200": {"description": "Successful Response"}}}
        else:
            said |= {
                "parameters": _parameters(path, parameters[one.query]),
                "responses": _responses(one, answers[one.name], problem),
            }
        paths[path] = {"get": said}
    return {"openapi": "3.1.0", "info": about, "paths": paths, "components": {"schemas": _tidied(components)}}


def _tidied(components: Schema) -> dict[str, Any]:
    """The schema with tidied docstrings, and with the type of enumerations, which are all of strings."""
    return {
        name: {"type": "string", **schema, "description": inspect.cleandoc(schema.get("description", ""))}
        for name, schema in components.items()
    }


def _parameters(path: str, query: Schema) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path" if f"{{{name}}}" in path else "query",
            "required": name in query["required"],
            "description": field.get("description", ""),
            "schema": _sent(field),
        }
        for name, field in query["properties"].items()
    ]


def _sent(field: Schema) -> dict[str, Any]:
    """What a request can have: an address cannot express null, which stands for a parameter that is not there."""
    sent = {key: value for key, value in field.items() if (key, value) != ("default", None)}
    kinds = [kind for kind in sent.pop("anyOf", []) if kind != {"type": "null"}]
    return sent | ({"anyOf": kinds} if kinds else {})


def _responses(operation: Operation, answer: Schema, problem: Schema) -> dict[str, Any]:
    def response(means: str, schema: Schema, **more: object) -> dict[str, Any]:
        return {"description": means, "content": {JSON: {"schema": schema, **more}}}

    responses = {
        "200": response("Successful Response", answer, example=examples.ANSWERS[operation.name]),
        "422": response("A parameter means nothing", problem),
    }
    return responses | ({"404": response(operation.missing, problem)} if operation.missing else {})
