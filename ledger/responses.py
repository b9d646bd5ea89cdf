"""A response declared once: its fields make the body, and the OpenAPI document shows the same fields."""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, ClassVar, TypeVar

from rest_framework import serializers

Read = Callable[[Any], Any]
Declared = TypeVar("Declared", bound="serializers.BaseSerializer[Any] | serializers.Field[Any, Any, Any, Any]")


def computed(field: Declared, value: Read | str | None = None, *, as_text: Callable[[Any], Any] | None = None) -> Declared:
    """Declare a field whose value is not the plain attribute of its name.

    Args:
        value: the name of another attribute, or a function that makes the member from the source of the body; for a nested
            schema, it makes the source of the nested body. None: the attribute of the field's name.
        as_text: how a value that is not None is shown, such as `time_text`.
    """
    field.value_of = value  # type: ignore[union-attr]
    field.as_text = as_text  # type: ignore[union-attr]
    return field


class ResponseSchema(serializers.Serializer[Any]):
    """The fields of a response in their order. The value of a field is the attribute of its name, unless `computed` says how.

    A nested schema makes a nested body, with `many=True` a list of them. A field with `required=False` is left out where its
    value is None.
    """

    _reads: ClassVar[tuple[tuple[str, Read], ...]] = ()
    """By member: what makes it out of the source."""
    _body_of: ClassVar[Read]
    """Makes all members at once, written out: a page has thousands of them."""
    _optional: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        fields: dict[str, Any] = cls._declared_fields
        cls._reads = tuple((name, _read(name, field)) for name, field in fields.items())
        cls._body_of = staticmethod(_written_out(fields))
        cls._optional = tuple(name for name, field in fields.items() if not field.required)

    @classmethod
    def body(cls, source: Any, **given: Any) -> dict[str, Any]:
        """Return the body that shows `source`.

        Args:
            given: members that the source does not have, as the body shows them.
        """
        if not given:
            made: dict[str, Any] = cls._body_of(source)
            return made
        body = {name: given[name] if name in given else read(source) for name, read in cls._reads}
        for name in cls._optional:
            if body[name] is None:
                del body[name]
        return body


def _written_out(fields: Mapping[str, Any]) -> Read:
    """Return a function that makes the members of a source, written out, which is faster than a loop.

    The required members up to the first optional one are made by one expression. An optional one that is None is not put in: most
    entries have few of theirs.
    """
    functions: dict[str, Any] = {}
    first, others = [], []
    for place, (name, field) in enumerate(fields.items()):
        attribute, show = _attribute(name, field), _shown_by(field)
        if attribute is None:
            functions[f"read_{place}"] = field.value_of
        if show is not None:
            functions[f"show_{place}"] = show
        value = f"read_{place}(source)" if attribute is None else f"source.{attribute}"
        shown = value if show is None else f"None if (value := {value}) is None else show_{place}(value)"
        if not field.required:
            others.append(f"    if (member := ({shown})) is not None: body[{name!r}] = member")
        elif others:
            others.append(f"    body[{name!r}] = {shown}")
        else:
            first.append(f"{name!r}: {shown}")
    lines = ["def body_of(source):", f"    body = {{{', '.join(first)}}}", *others, "    return body"]
    exec("\n".join(lines), functions)  # noqa: S102 - names of declared fields
    made: Read = functions["body_of"]
    return made


def _attribute(name: str, field: Any) -> str | None:
    """The attribute that the member is made of; None if a function makes it."""
    value = getattr(field, "value_of", None)
    return name if value is None else value if isinstance(value, str) else None


def _read(name: str, field: Any) -> Read:
    attribute, show = _attribute(name, field), _shown_by(field)
    read: Read = field.value_of if attribute is None else attrgetter(attribute)
    if show is None:
        return read
    return lambda source: None if (value := read(source)) is None else show(value)


def _shown_by(field: Any) -> Read | None:
    """What makes the member's text or nested body; None where the value is shown as it is."""
    if isinstance(field, serializers.ListSerializer) and isinstance(field.child, ResponseSchema):
        each = type(field.child)._body_of
        return lambda sources: [each(source) for source in sources]
    return type(field).body if isinstance(field, ResponseSchema) else getattr(field, "as_text", None)
