"""Objects, lists and maps of fields: a body is declared as a `StrictSerializer`, and `read` takes it apart.

The declarations are DRF's, so that drf-spectacular documents them. The reading is not: `read` walks a plan that is made once per
class, refuses unknown fields, and collects all errors instead of stopping at the first.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

from rest_framework import serializers
from rest_framework.fields import empty

from ledger.api.kit.reading.fields import InvalidValue, StrictField, json_name
from ledger.api.kit.reading.parsing import pointer_part
from ledger.api.kit.request_errors import FieldError, InvalidRequest


class MapField(StrictField):
    """An object whose keys are free and whose values are all of one kind."""

    def __init__(
        self, *, child: "StrictField | StrictSerializer", max_keys: int = 50, key_length: int = 64, **options: Any
    ) -> None:
        self.child = child
        self.max_keys = max_keys
        self.key_length = key_length
        super().__init__(**options)

    def take(self, value: Any, pointer: str, field_errors: list[FieldError]) -> Any:
        if type(value) is not dict:
            return super().take(value, pointer, field_errors)
        if len(value) > self.max_keys:
            field_errors.append(FieldError(pointer, "too-many-keys", f"This must have at most {self.max_keys} keys."))
            return None
        detail = f"A key must be 1 to {self.key_length} characters."
        misfits = [key for key in value if not 1 <= len(key) <= self.key_length]
        field_errors.extend(FieldError(pointer + pointer_part(key), "too-long", detail) for key in misfits)
        return {key: self.child.take(item, pointer + pointer_part(key), field_errors) for key, item in value.items()}

    def clean(self, value: Any) -> Any:
        if type(value) is not dict:
            raise InvalidValue("not-an-object", f"This must be an object, not {json_name(value)}.")
        return _alone(self, value)

    def openapi(self) -> dict[str, Any]:
        return {
            "type": "object",
            "maxProperties": self.max_keys,
            "propertyNames": {"minLength": 1, "maxLength": self.key_length},
        }


class AnyOfField(StrictField):
    """A list of objects of several kinds, told apart by one of their members; each is read by its own shape, later.

    Args:
        by: the name of the member that names the kind.
        shapes: by that name.
        item_name: what an object of any kind is called in the OpenAPI document.
    """

    def __init__(
        self,
        *,
        by: str,
        shapes: "Mapping[str, type[StrictSerializer]]",
        item_name: str,
        max_items: int,
        min_items: int = 0,
        **options: Any,
    ) -> None:
        self.by = by
        self.item_name = item_name
        self.shapes = shapes
        self.max_items = max_items
        self.min_items = min_items
        super().__init__(**options)

    def clean(self, value: Any) -> list[Any]:
        if type(value) is not list:
            raise InvalidValue("not-a-list", f"This must be a list, not {json_name(value)}.")
        if len(value) > self.max_items:
            raise InvalidValue("too-many-items", f"This must have at most {self.max_items} items.")
        if len(value) < self.min_items:
            raise InvalidValue("too-few-items", f"This must have at least {self.min_items} items.")
        return value

    def openapi(self) -> dict[str, Any]:
        return {"type": "array", "minItems": self.min_items, "maxItems": self.max_items}


class ListOfField(StrictField):
    """A list whose items are all of one kind."""

    def __init__(self, *, child: "StrictField | StrictSerializer", max_items: int, min_items: int = 0, **options: Any) -> None:
        self.child = child
        self.max_items = max_items
        self.min_items = min_items
        super().__init__(**options)

    def take(self, value: Any, pointer: str, field_errors: list[FieldError]) -> Any:
        if type(value) is not list:
            return super().take(value, pointer, field_errors)
        if len(value) > self.max_items:
            field_errors.append(FieldError(pointer, "too-many-items", f"This must have at most {self.max_items} items."))
            return None
        if len(value) < self.min_items:
            field_errors.append(FieldError(pointer, "too-few-items", f"This must have at least {self.min_items} items."))
        return [self.child.take(item, f"{pointer}/{number}", field_errors) for number, item in enumerate(value)]

    def clean(self, value: Any) -> Any:
        if type(value) is not list:
            raise InvalidValue("not-a-list", f"This must be a list, not {json_name(value)}.")
        return _alone(self, value)

    def openapi(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "array", "maxItems": self.max_items}
        if self.min_items:
            schema["minItems"] = self.min_items
        return schema


def _alone(field: MapField | ListOfField, value: Any) -> Any:
    """Return what `take` makes of a value outside of `read`, or raise `InvalidValue` with the first field_error."""
    field_errors: list[FieldError] = []
    taken = field.take(value, "", field_errors)
    if field_errors:
        raise InvalidValue(field_errors[0].code, field_errors[0].detail, field_errors[0].pointer)
    return taken


class _Step(NamedTuple):
    """How one field of a body is read: looked up once, not per request."""

    name: str
    take: Callable[[Any, str, list[FieldError]], Any]
    required: bool
    default: Any


class StrictSerializer(serializers.Serializer):
    """An object with exactly the declared fields. Not required, no default: left out of the result, like an optional null."""

    either: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Groups of fields of which exactly one must be given, whole; such as `amount`, or `rate` and `quantity`."""

    _steps: ClassVar[tuple[_Step, ...] | None] = None
    _names: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def _plan(cls) -> tuple[_Step, ...]:
        fields: Mapping[str, Any] = cls().fields
        cls._names = frozenset(fields)
        cls._steps = tuple(_Step(name, field.take, field.required, field.default) for name, field in fields.items())
        return cls._steps

    def take(self, value: Any, pointer: str, field_errors: list[FieldError]) -> dict[str, Any] | None:
        """Return the clean fields of the object `value`; or add to `field_errors`. As a field: null only with allow_null."""
        if type(value) is dict:
            return self.take_fields(value, pointer, field_errors)
        if value is None and not self.allow_null:
            field_errors.append(FieldError(pointer, "null", "This may not be null."))
        elif value is not None:
            field_errors.append(FieldError(pointer, "not-an-object", f"This must be an object, not {json_name(value)}."))
        return None

    @classmethod
    def take_fields(cls, value: dict[str, Any], pointer: str, field_errors: list[FieldError]) -> dict[str, Any]:
        """Return the clean fields of an object; what is wrong with it is added to `field_errors`, under `pointer`."""
        steps, taken, known = cls.__dict__.get("_steps") or cls._plan(), {}, 0
        for name, take, required, default in steps:
            if name in value:
                known += 1
                clean = take(value[name], f"{pointer}/{name}", field_errors)
                if clean is not None:
                    taken[name] = clean
            elif required:
                field_errors.append(FieldError(f"{pointer}/{name}", "required", "This is required."))
            elif default is not empty:
                taken[name] = default() if callable(default) else default
        if known < len(value):
            field_errors.extend(_unknown(value, cls._names, pointer))
        if cls.either:
            field_errors.extend(_neither(value, cls.either, pointer))
        return taken


def choice_text(groups: tuple[tuple[str, ...], ...]) -> str:
    """Return for people which groups of fields there are to choose from; see `StrictSerializer.either`."""
    return ", or ".join(" and ".join(group) for group in groups)


def _neither(value: dict[str, Any], groups: tuple[tuple[str, ...], ...], pointer: str) -> list[FieldError]:
    begun = [group for group in groups if not value.keys().isdisjoint(group)]
    if not begun:
        return [FieldError(f"{pointer}/{groups[0][0]}", "required", f"Give {choice_text(groups)}.")]
    if len(begun) > 1:
        return [FieldError(f"{pointer}/{begun[1][0]}", "not-both", f"Give either this or {begun[0][0]}, not both.")]
    return [FieldError(f"{pointer}/{name}", "required", "This is required.") for name in begun[0] if name not in value]


def _unknown(value: dict[str, Any], names: frozenset[str], pointer: str) -> list[FieldError]:
    detail = f"This field does not exist; the fields are {', '.join(sorted(names))}." if names else "This object takes no fields."
    return [FieldError(pointer + pointer_part(key), "unknown-field", detail) for key in value if key not in names]


def read(serializer_class: type[StrictSerializer], data: Any) -> dict[str, Any]:
    """Return the clean fields of a body, or raise `InvalidRequest` with everything that is wrong with it.

    Returns:
        Fields that were given or have a default. An optional field that was left out or null is not in it.
    """
    field_errors: list[FieldError] = []
    if type(data) is not dict:
        raise InvalidRequest([FieldError("", "not-an-object", f"This must be an object, not {json_name(data)}.")])
    taken = serializer_class.take_fields(data, "", field_errors)
    if field_errors:
        raise InvalidRequest(field_errors)
    return taken
