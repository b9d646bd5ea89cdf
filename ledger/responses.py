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
        if given:
            body = {name: given[name] if name in given else read(source) for name, read in cls._reads}
        else:
            body = cls._body_of(source)
        for name in cls._optional:
            if body[name] is None:
                del body[name]
        return body


def _written_out(fields: Mapping[str, Any]) -> Read:
    """Return a function that makes the members of a source, in one expression, which is faster than a loop."""
    functions: dict[str, Read] = {}
    members = []
    for place, (name, field) in enumerate(fields.items()):
        attribute, show = _attribute(name, field), _shown_by(field)
        if attribute is None:
            functions[f"read_{place}"] = field.value_of
        if show is not None:
            functions[f"show_{place}"] = show
        value = f"read_{place}(source)" if attribute is None else f"source.{attribute}"
        shown = value if show is None else f"None if (value := {value}) is None else show_{place}(value)"
        members.append(f"{name!r}: {shown}")
    made: Read = eval(f"lambda source: {{{', '.join(members)}}}", functions)  # noqa: S307 - names of declared fields
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
        each = type(field.child).body
        return lambda sources: [each(source) for source in sources]
    return type(field).body if isinstance(field, ResponseSchema) else getattr(field, "as_text", None)
