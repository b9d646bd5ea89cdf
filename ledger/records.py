"""Requests are declared as frozen dataclasses; what is read, checked, documented and executed comes from the declaration.

    @dataclass(frozen=True, kw_only=True)
    class TransferRequest(Record):
        \"""Credits to move to another holder.\"""

        to: Annotated[str, Holder("The holder who gets them.")]
        amount: Annotated[int, Amount("How many, in the smallest unit.")]

A `Shape` reads such a record strictly from JSON, with all errors at once, and `make` builds it from what was read. A record that
Python code makes is checked by its constructor, field by field with the same types. So each value is judged once.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Generic, NamedTuple, ParamSpec, TypeVar, get_type_hints

from ledger.errors import FieldError, Invalid
from ledger.values import EntryNumber, InvalidValue, Value, json_name, pointer_part

P = ParamSpec("P")
RecordT = TypeVar("RecordT", bound="Record")
Result = TypeVar("Result")


class Field(NamedTuple):
    """A declared field of a record, and how it is read: looked up once, not per request."""

    name: str
    value: Value
    required: bool
    default: Any
    """None for no default; the result of `make_default` where that is given."""
    make_default: Callable[[], Any] | None = None


def field_of(name: str, value: Value, *, required: bool, default: Any = None) -> Field:
    """Return a field that a shape has beside those of its record."""
    return Field(name, value, required, default)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """Base of what is declared by annotated fields. A value from Python that its type refuses raises `Invalid`, by field."""

    either: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Groups of fields of which exactly one must be given, whole; such as `amount`, or `rate` and `quantity`."""

    keeps_null: ClassVar[frozenset[str]] = frozenset()
    """Fields whose null differs from leaving them out."""

    def __post_init__(self) -> None:
        given = self.__dict__
        for name, value, required, default, make_default in declared_fields(type(self)):
            item = given[name]
            if item is default and not required:
                continue
            if item is None and make_default is not None:
                given[name] = make_default()
                continue
            given[name] = check(value, item, f"/{name}")
        if self.either:
            whole = {name: item for name, item in given.items() if item is not None}
            for pointer, code, detail in choice_errors(whole, self.either, ""):
                raise Invalid(pointer=pointer, rule=code, detail=detail)
        self.check_whole()

    def check_whole(self) -> None:
        """Return if the fields fit together, or raise `Invalid`."""


def check(value: Value, item: Any, pointer: str) -> Any:
    """Return Python's `item` as the type has it, or raise `Invalid` with this pointer."""
    try:
        return value.check(item)
    except InvalidValue as invalid:
        raise Invalid(pointer=pointer + invalid.at, rule=invalid.code, detail=invalid.detail) from invalid


def declared_fields(declared: type[Record]) -> tuple[Field, ...]:
    """Return the fields of a record that have a type of value, in the order of their declaration."""
    known = _FIELDS.get(declared)
    if known is None:
        known = _FIELDS[declared] = tuple(_fields_of(declared))
    return known


_FIELDS: dict[type[Record], tuple[Field, ...]] = {}


def _fields_of(declared: type[Record]) -> Iterator[Field]:
    hints = get_type_hints(declared, include_extras=True)
    for each in dataclasses.fields(declared):
        value = next((item for item in getattr(hints[each.name], "__metadata__", ()) if isinstance(item, Value)), None)
        if value is not None:
            factory = None if each.default_factory is dataclasses.MISSING else each.default_factory
            required = each.default is dataclasses.MISSING and factory is None
            default = None if each.default is dataclasses.MISSING else each.default
            yield Field(each.name, value, required, default, factory)


class Shape(Generic[RecordT]):
    """The JSON object that a record, or a part of its fields, is read from."""

    def __init__(
        self,
        declared: type[RecordT],
        *,
        name: str = "",
        text: str = "",
        without: Collection[str] = (),
        before: Iterable[Field] = (),
        after: Iterable[Field] = (),
    ) -> None:
        """Take the fields of `declared`.

        Args:
            name, text: of the component in the OpenAPI document; by default the class's, and the first line of its docstring.
            without: fields that come from elsewhere, such as a path.
            before, after: further fields, which are not the record's.
        """
        own = [each for each in declared_fields(declared) if each.name not in without]
        self.declared = declared
        self.name = name or declared.__name__
        self.text = text or (declared.__doc__ or "").partition("\n")[0]
        self.fields = (*before, *own, *after)
        self.names = frozenset(each.name for each in self.fields)
        self.entry_numbers = tuple(each.name for each in self.fields if isinstance(each.value, EntryNumber))
        self.either = declared.either
        self._keeps_null = declared.keeps_null
        self._steps = [
            # What a plain value's `take` does is done here: a spend has few calls.
            (each.name, each.value.read if type(each.value).take is Value.take else None, each.value.take, each.value.null,
             each.required, each.default)
            for each in self.fields
        ]  # fmt: skip
        self._is_checked_whole = declared.check_whole is not Record.check_whole
        self._made = [(each.name, each.value.made) for each in self.fields if type(each.value).made is not Value.made]
        self._factories = [(each.name, each.make_default) for each in self.fields if each.make_default is not None]

    def take(self, value: dict[str, Any], pointer: str, field_errors: list[FieldError]) -> dict[str, Any]:
        """Return the fields of an object that were given or have a default; add to `field_errors` what is wrong with it.

        Optional fields that were left out or null are not in it.
        """
        taken: dict[str, Any] = {}
        known = 0
        for name, read, take, null, required, default in self._steps:
            if name in value:
                known += 1
                item = value[name]
                if item is None and null:
                    if name in self._keeps_null:
                        taken[name] = None
                elif item is None or read is None:
                    item = take(item, f"{pointer}/{name}", field_errors)
                    if item is not None:
                        taken[name] = item
                else:
                    try:
                        taken[name] = read(item)
                    except InvalidValue as invalid:
                        field_errors.append(FieldError(f"{pointer}/{name}{invalid.at}", invalid.code, invalid.detail))
            elif required:
                field_errors.append(FieldError(f"{pointer}/{name}", "required", "This is required."))
            elif default is not None:
                taken[name] = default
        if known < len(value):
            field_errors.extend(_unknown(value, self.names, pointer))
        if self.either:
            field_errors.extend(choice_errors(value, self.either, pointer))
        return taken

    def make(self, fields: dict[str, Any]) -> RecordT:
        """Return the record of the fields that `take` returned without errors, and of those that come from elsewhere."""
        for name, make_default in self._factories:
            if name not in fields:
                fields[name] = make_default()
        for name, made in self._made:
            if fields.get(name) is not None:
                fields[name] = made(fields[name])
        record = object.__new__(self.declared)
        # Not by the constructor, which would judge the values again. Other defaults are attributes of the class.
        record.__dict__.update(fields)
        if self._is_checked_whole:
            record.check_whole()
        return record


def shape_of(declared: type[RecordT]) -> Shape[RecordT]:
    """Return the shape with all fields of the record."""
    shape = _SHAPES.get(declared)
    if shape is None:
        shape = _SHAPES[declared] = Shape(declared)
    return shape


_SHAPES: dict[type[Record], Shape[Any]] = {}


class Nested(Value):
    """An object that is a record itself."""

    def __init__(self, declared: type[Record], text: str = "", **options: Any) -> None:
        super().__init__(text, **options)
        self.shape = shape_of(declared)

    def take(self, value: Any, pointer: str, field_errors: list[FieldError]) -> Any:
        if type(value) is dict:
            return self.shape.take(value, pointer, field_errors)
        if value is not None:
            field_errors.append(FieldError(pointer, "not-an-object", f"This must be an object, not {json_name(value)}."))
            return None
        return super().take(value, pointer, field_errors)

    def made(self, item: Any) -> Any:
        return self.shape.make(dict(item))

    def check(self, value: Any) -> Any:
        if type(value) is dict:
            return self.shape.declared(**value)
        if not isinstance(value, self.shape.declared):
            raise InvalidValue("not-an-object", f"This must be a {self.shape.declared.__name__}.")
        return value

    def openapi(self) -> Any:
        return self.shape


class OneOf(Value):
    """A list of objects of several shapes, told apart by one of their members; each is read by its shape, later."""

    def __init__(
        self, text: str = "", *, by: str, shapes: Mapping[str, Shape[Any]], item_name: str, most: int, least: int = 0
    ) -> None:
        """Declare the list.

        Args:
            by: the name of the member that names the shape.
            shapes: by that name.
            item_name: what an object of any shape is called in the OpenAPI document.
        """
        super().__init__(text)
        self.by = by
        self.shapes = shapes
        self.item_name = item_name
        self.most = most
        self.least = least

    def read(self, value: Any) -> list[Any]:
        if type(value) is not list:
            raise InvalidValue("not-a-list", f"This must be a list, not {json_name(value)}.")
        if len(value) > self.most:
            raise InvalidValue("too-many-items", f"This must have at most {self.most} items.")
        if len(value) < self.least:
            raise InvalidValue("too-few-items", f"This must have at least {self.least} items.")
        return value

    def openapi(self) -> dict[str, Any]:
        return {"type": "array", "minItems": self.least, "maxItems": self.most, "items": self}


# Use-cases -------------------------------------------------------------------------------------------


class UseCase(Generic[P, RecordT, Result]):
    """What executes a record, called with the record's fields by name; `execute` takes the record itself."""

    def __init__(self, declared: Callable[P, RecordT], execute: Callable[[RecordT], Result]) -> None:
        self._declared = declared
        self.execute = execute
        self.__doc__ = f"{declared.__doc__}\n\n{execute.__doc__}"

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> Result:
        return self.execute(self._declared(*arguments, **named))


# What is wrong with several fields -------------------------------------------------------------------


def choice_text(groups: tuple[tuple[str, ...], ...]) -> str:
    """Return for people which groups of fields there are to choose from; see `Record.either`."""
    return ", or ".join(" and ".join(group) for group in groups)


def choice_errors(value: Mapping[str, Any], groups: tuple[tuple[str, ...], ...], pointer: str) -> list[FieldError]:
    """Return what is wrong with the choice between groups of fields; see `Record.either`."""
    begun = [group for group in groups if not value.keys().isdisjoint(group)]
    if not begun:
        return [FieldError(f"{pointer}/{groups[0][0]}", "required", f"Give {choice_text(groups)}.")]
    if len(begun) > 1:
        return [FieldError(f"{pointer}/{begun[1][0]}", "not-both", f"Give either this or {begun[0][0]}, not both.")]
    return [FieldError(f"{pointer}/{name}", "required", "This is required.") for name in begun[0] if name not in value]


def _unknown(value: dict[str, Any], names: frozenset[str], pointer: str) -> list[FieldError]:
    detail = f"This field does not exist; the fields are {', '.join(sorted(names))}." if names else "This object takes no fields."
    return [FieldError(pointer + pointer_part(key), "unknown-field", detail) for key in value if key not in names]
