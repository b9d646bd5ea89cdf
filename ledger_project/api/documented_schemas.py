"""The schemas of the OpenAPI document, in the forms that client generators read alike."""

import json
from collections.abc import Iterator
from typing import Any

_NULL_ENUM = "NullEnum"
_NULL = {"type": "null"}


def without_second_spellings(endpoints: list[tuple[Any, ...]], **context: Any) -> list[tuple[Any, ...]]:
    """Leave out paths that end with a slash: the same calls exist without it. A drf-spectacular preprocessing hook."""
    return [endpoint for endpoint in endpoints if not endpoint[0].endswith("/")]


def simplify_schemas(result: dict[str, Any], **context: Any) -> dict[str, Any]:
    """Bring the schemas of bodies into forms that client generators compile. A drf-spectacular postprocessing hook.

    - What may be null is an `anyOf`, and its null has no name: generators make a class of each part of a `oneOf`.
    - Fields that may be left out say their default in their description: generators require fields with a `default`.
    """
    result["components"]["schemas"].pop(_NULL_ENUM, None)
    for component in result["components"]["schemas"].values():
        for schema in _with_parts(component):
            _simplify_null(schema)
            properties = schema.get("properties", {})
            for name in properties.keys() - set(schema.get("required", ())):
                _describe_default(properties[name])
    return result


def _with_parts(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield a schema and the schemas in it, down to references; `additionalProperties` may be true or false instead of one."""
    if not isinstance(schema, dict):
        return
    yield schema
    parts = [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]
    for part in parts + [part for word in ("oneOf", "anyOf", "allOf") for part in schema.get(word, ())]:
        yield from _with_parts(part)


def _simplify_null(schema: dict[str, Any]) -> None:
    simple = [_NULL if part.get("$ref", "").endswith(f"/{_NULL_ENUM}") else part for part in schema.get("oneOf", ())]
    if _NULL in simple:
        del schema["oneOf"]
        schema["anyOf"] = simple


def _describe_default(schema: dict[str, Any]) -> None:
    if "default" in schema:
        default = json.dumps(schema.pop("default"))
        schema["description"] = f"{schema.get('description', '')} Default: `{default}`.".strip()
