"""The OpenAPI document as the page /docs/api reads it: as OpenAPI 3.0.

Swagger UI resolves a document of 3.1 as a whole, again for each call that is opened, and one of 3.0 only where it is opened: the
page is there several times as soon. Programs read the document of 3.1, which says more.
"""

from typing import Any, Final

VERSION: Final = "3.0.3"
NULL: Final = "null"
LATER: Final = frozenset({"propertyNames", "contentEncoding", "contentMediaType"})
"""Keywords of JSON Schema that 3.0 does not have; without them a schema allows more."""


def as_openapi_3_0(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document as OpenAPI 3.0. What only 3.1 can say is left out."""
    return {name: _rewrite(each) for name, each in document.items()} | {"openapi": VERSION}


def _rewrite(value: Any) -> Any:
    if isinstance(value, list):
        return [_rewrite(each) for each in value]
    return _rewrite_object({name: _rewrite(each) for name, each in value.items()}) if isinstance(value, dict) else value


def _rewrite_object(given: dict[str, Any]) -> dict[str, Any]:
    """Return a schema as 3.0 writes it; any other object as it is."""
    types = given.get("type")
    if isinstance(types, list):
        named = [each for each in types if each != NULL]
        own = {"type": named[0]} if len(named) == 1 else {"anyOf": [{"type": each} for each in named]}
        given = {name: each for name, each in given.items() if name != "type"} | own
        given |= {"nullable": True} if NULL in types else {}
    if isinstance(given.get("const"), str):
        given = {name: each for name, each in given.items() if name != "const"} | {"enum": [given["const"]]}
    return {name: each for name, each in given.items() if name not in LATER or not isinstance(each, dict | str)}
