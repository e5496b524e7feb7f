"""The page of the REST API, made from the OpenAPI description of the server."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from holdfast import Holdfast
from holdfast.web import dashboard
from holdfast.web.routing import DECLARED
from holdfast.web.security.permissions import KNOWN, PUBLIC, ROLES, Permission
from holdfast.web.server import PREFIX
from tools.reference.markdown import code, heading, plain, prose, sentence, table

Json = Any
METHODS = ("get", "post", "put", "patch", "delete")


def description() -> dict[str, Json]:
    """Return the OpenAPI description. No database is opened."""
    schema: dict[str, Json] = dashboard(Holdfast("sqlite:///:none:.db")).openapi()
    return schema


def routes(schema: Mapping[str, Json]) -> Iterator[tuple[str, str, dict[str, Json]]]:
    for path, operations in schema["paths"].items():
        for method in METHODS:
            if method in operations:
                yield method.upper(), path, operations[method]


def who(permission: str) -> str:
    if permission == PUBLIC:
        return "anyone"
    if permission == KNOWN:
        return "any authenticated caller"
    roles = [role for role, may in ROLES.items() if Permission(permission) in may]
    return f"{code(permission)}: {', '.join(roles)}"


def typed(schema: Json) -> str:
    """Return a short text for a type, with links to models."""
    if not isinstance(schema, dict) or not schema:
        return "any JSON"
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#model-{name.lower()})"
    for several in ("anyOf", "oneOf"):
        if several in schema:
            given = [one for one in schema[several] if one.get("type") != "null"]
            return " or ".join(dict.fromkeys(typed(one) for one in given))
    if "enum" in schema:
        return ", ".join(code(one) for one in schema["enum"])
    if "const" in schema:
        return code(schema["const"])
    if schema.get("type") == "array":
        return f"list of {typed(schema.get('items', {}))}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"object of {typed(schema['additionalProperties'])}"
    kind = str(schema.get("type", "any JSON"))
    return f"{kind} ({schema['format']})" if "format" in schema else kind


def bounds(schema: Json) -> str:
    """Return the bounds of a value, and an example."""
    found = [schema, *schema.get("anyOf", ())] if isinstance(schema, dict) else []
    words = []
    for one in found:
        if "minimum" in one or "maximum" in one:
            words.append(f"from {one.get('minimum', '...')} to {one.get('maximum', '...')}")
        if "maxLength" in one:
            words.append(f"at most {one['maxLength']} characters")
        if "maxItems" in one:
            words.append(f"at most {one['maxItems']}")
        if "examples" in one:
            words.append(f"e.g. {', '.join(code(example) for example in one['examples'])}")
    return "; ".join(dict.fromkeys(words))


def said(schema: Json, words: str = "") -> str:
    told = [words or (schema.get("description", "") if isinstance(schema, dict) else "")]
    return ". ".join(sentence(plain(one)).rstrip(".") for one in [*told, bounds(schema)] if one)


def fields(model: Mapping[str, Json]) -> str:
    required = set(model.get("required", ()))
    rows = (
        [
            code(name),
            typed(schema),
            "yes" if name in required else "",
            code(schema["default"]) if schema.get("default") not in (None, [], {}) else "",
            said(schema),
        ]
        for name, schema in model.get("properties", {}).items()
    )
    return table(("field", "type", "required", "default", "meaning"), rows)


def route(method: str, path: str, operation: Mapping[str, Json]) -> str:
    short = path.removeprefix(PREFIX)
    anchor = re.sub(r"[{}]", "", f"{method}{short}".lower().replace("/", "-"))
    parts = [heading(3, code(f"{method} {short}"), anchor)]
    parts.append(prose(operation.get("description") or operation.get("summary", "")))
    parts.append(f"Who may: {who(operation[DECLARED])}.\n")
    rows = (
        [
            code(one["name"]),
            one["in"],
            typed(one.get("schema")),
            said(one.get("schema", {}), one.get("description", "")),
        ]
        for one in operation.get("parameters", ())
    )
    parts.append(table(("parameter", "in", "type", "meaning"), rows))
    body = operation.get("requestBody", {}).get("content", {})
    for kind, given in body.items():
        parts.append(f"\nBody ({kind}): {typed(given.get('schema'))}\n\n")
    answers = (
        [code(status), _answer(answer)]
        for status, answer in sorted(operation["responses"].items())
        if int(status) < 400
    )
    return "".join(parts) + table(("answer", "what"), answers)


def _answer(answer: Mapping[str, Json]) -> str:
    words = answer.get("description", "")
    words = "" if words in ("Successful Response", "A problem") else f"{words}. "
    for kind, given in answer.get("content", {}).items():
        told = typed(given.get("schema"))
        return words + (told if kind == "application/json" else f"{code(kind)}")
    return words or "nothing"


def page() -> str:
    schema = description()
    parts = [INTRODUCTION]
    tag = ""
    for method, path, operation in sorted(
        routes(schema), key=lambda one: _order(schema, one[2]["tags"][0])
    ):
        if operation["tags"][0] != tag:
            tag = operation["tags"][0]
            parts.append(heading(2, tag.capitalize(), tag))
        parts.append(route(method, path, operation))
        if path.endswith("/events"):
            parts.append(SOCKET)
    parts.append(heading(2, "Models", "models"))
    for name, model in sorted(schema["components"]["schemas"].items()):
        parts.append(heading(3, name, f"model-{name.lower()}"))
        parts += [prose(model.get("description", "")), fields(model)]
        if "enum" in model:
            parts.append(", ".join(code(one) for one in model["enum"]) + "\n")
    return "".join(parts)


def _order(schema: Mapping[str, Json], tag: str) -> int:
    """Return the place of a tag in the order of the server."""
    return list(dict.fromkeys(one["tags"][0] for *_, one in routes(schema))).index(tag)


INTRODUCTION = """# REST API

What `holdfast web` serves, and `dashboard(app)` where you mount it. Paths are relative to
`/api/v1` of that place, except `/health`, `/ready` and `/metrics`, which are at its root. The
server describes itself at `GET /openapi.json`.

- **Authentication**: `Authorization: Bearer hf_...`, the cookie of a login, or your own `authorize=`.
  Pages of other sites may change nothing, unless `origins=` names them. [Roles](web.md#roles)
  has the permissions of each role.
- **Errors** are `application/problem+json` ([Problem](#model-problem)): the thing, the rule and
  the remedy, and the field if there is one. 400 unreadable, 401 not authenticated, 403 not
  permitted, 404 not found, 405 method not allowed, 409 not in this state, 413 too large, 415 not
  JSON, 421 host name not allowed, 422 breaks a rule, 429 too many requests, 503 the database does
  not answer.
- **Lists** are newest first and paged: `next` of one page is `after` of the following one.
- **Times** are UTC, ISO 8601; a moment without an offset is taken as UTC.
"""

SOCKET = """
### `WebSocket /events` { #websocket-events }

The same messages with the same parameters and the same permission, on one connection.
Browsers cannot set headers on it: the cookie, or `link=`, authenticates the caller. [Live
events](../guides/live.md) has the codes by which it is closed.
"""
