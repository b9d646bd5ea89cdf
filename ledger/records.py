"""Requests are declared as frozen dataclasses; the declaration reads, checks, documents and executes them.

    @dataclass(frozen=True, kw_only=True)
    class TransferRequest(Record):
        \"""Credits to move to another holder.\"""

        to: Annotated[str, Holder("The holder who gets them.")]
        amount: Annotated[int, Amount("How many, in the smallest unit.")]

A `Shape` reads such a record strictly from JSON, with all errors at once, and `make` builds it from what was read. A record that
Python code makes is checked by its constructor, field by field with the same types. So each value is judged once.
"""

import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Generic, NamedTuple, ParamSpec, TypeVar, get_type_hints

from asgiref.sync import sync_to_async

from ledger.errors import Invalid
from ledger.values import EntryNumber, FieldError, InvalidValue, Value, json_name, pointer_part

P = ParamSpec("P")
RecordT = TypeVar("RecordT", bound="Record")
Result = TypeVar("Result")


class Field(NamedTuple):
    """A declared field of a record, and its reading: looked up once, not per request."""

    name: str
    value: Value
    required: bool
    default: Any
    """None without a default; the result of `make_default` if that is given."""
    make_default: Callable[[], Any] | None = None

    @property
    def json_name(self) -> str:
        """The name in JSON; see `Value.named`."""
        return self.value.named or self.name


def field_of(name: str, value: Value, *, required: bool, default: Any = None) -> Field:
    """Return a field that a shape has beside those of its record."""
    return Field(name, value, required, default)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """Base of records with annotated fields. A Python value that its type refuses raises `Invalid`, by field."""

    either: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Groups of fields of which exactly one must be given, whole; such as `amount`, or `rate` and `quantity`. A field may
    belong to several groups; each group has one of its own."""

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
    """Return Python's `item` in the form of the type, or raise `Invalid` with this pointer."""
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
    """The JSON object from which a record, or a part of its fields, is read."""

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
            # A plain value's `take` is inlined here, so that a spend has few calls.
            (each.name, each.value.read if type(each.value).take is Value.take else None, each.value.take, each.value.null,
             each.required, each.default)
            for each in self.fields
        ]  # fmt: skip
        self.named = {each.value.named: each.name for each in self.fields if each.value.named}
        """By the name in JSON: the attribute, where the two differ."""
        if self.named:
            # Not asked in each `take`: a spend has few calls.
            self.take = self._take_by_names_in_json  # type: ignore[method-assign]
        self._is_checked_whole = declared.check_whole is not Record.check_whole
        self._made = [(each.name, each.value.made) for each in self.fields if type(each.value).made is not Value.made]
        self._factories = [(each.name, each.make_default) for each in self.fields if each.make_default is not None]

    def take(self, value: dict[str, Any], pointer: str, field_errors: list[FieldError]) -> dict[str, Any]:
        """Return the fields of an object that were given or have a default; add the faults to `field_errors`.

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
            field_errors.extend(_unknown(value, self, pointer))
        if self.either:
            field_errors.extend(choice_errors(value, self.either, pointer))
        return taken

    def take_by_attributes(self, value: dict[str, Any], pointer: str, field_errors: list[FieldError]) -> dict[str, Any]:
        """As `take`, of an object that has the names of the attributes, as do its errors."""
        return Shape.take(self, value, pointer, field_errors)

    def _take_by_names_in_json(self, value: dict[str, Any], pointer: str, field_errors: list[FieldError]) -> dict[str, Any]:
        attributes = {attribute: name for name, attribute in self.named.items()}
        known = {self.named.get(name, name): item for name, item in value.items() if name not in attributes}
        found: list[FieldError] = []
        taken = self.take_by_attributes(known, pointer, found)
        field_errors.extend(each._replace(pointer=renamed(each.pointer, attributes, pointer)) for each in found)
        field_errors.extend(_unknown({name: None for name in value if name in attributes}, self, pointer, but=attributes))
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
        # Not by the constructor, which would check the values again. Other defaults are attributes of the class.
        record.__dict__.update(fields)
        if self._is_checked_whole:
            record.check_whole()
        return record


def renamed(at: str, shown: Mapping[str, str], within: str = "") -> str:
    """Return the pointer of an error with other names of fields.

    Args:
        shown: the other names, by those that the pointer may have.
        within: the pointer of the object that has the fields.
    """
    field, slash, rest = at[len(within) + 1 :].partition("/")
    return f"{within}/{shown[field]}{slash}{rest}" if field in shown else at


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
    """An object of one of several shapes, distinguished by one of its members. Its shape reads it later."""

    def __init__(self, text: str = "", *, by: str, shapes: Mapping[str, Shape[Any]], item_name: str) -> None:
        """Declare the object.

        Args:
            by: the name of the member that names the shape.
            shapes: by that name.
            item_name: the name of an object of any shape in the OpenAPI document.
        """
        super().__init__(text)
        self.by = by
        self.shapes = shapes
        self.item_name = item_name

    def take(self, value: Any, pointer: str, field_errors: list[FieldError]) -> Any:
        return value

    def openapi(self) -> Any:
        return self


# Use-cases -------------------------------------------------------------------------------------------


class UseCase(Generic[P, RecordT, Result]):
    """Executes a record, called with the record's fields by name; `execute` takes the record itself."""

    def __init__(self, declared: Callable[P, RecordT], execute: Callable[[RecordT], Result]) -> None:
        self._declared = declared
        self.execute = execute
        self.__doc__ = f"{declared.__doc__}\n\n{execute.__doc__}"

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> Result:
        return self.execute(self._declared(*arguments, **named))


def async_twins(module: Mapping[str, Any]) -> Callable[[str], Callable[..., Awaitable[Any]]]:
    """Return a module's `__getattr__`, by which each of its functions has a twin to await: `aspend` for `spend`.

    A twin runs the function in the thread that Django keeps for synchronous code, one call after the other. A function that
    yields, or takes the proof of a lock, has none: it works only inside a `with` of its own thread.
    """

    def twin(name: str) -> Callable[..., Awaitable[Any]]:
        function = module.get(name[1:]) if name[:1] == "a" else None
        if not (isinstance(function, UseCase) or inspect.isfunction(function)) or _needs_its_thread(function):
            raise AttributeError(f"module {module['__name__']!r} has no attribute {name!r}")
        return sync_to_async(function, thread_sensitive=True)

    return twin


def _needs_its_thread(function: Callable[..., Any]) -> bool:
    return inspect.isgeneratorfunction(inspect.unwrap(function)) or "lock" in inspect.signature(function).parameters


# What is wrong with several fields -------------------------------------------------------------------


def choice_text(groups: tuple[tuple[str, ...], ...]) -> str:
    """Return the groups of fields to choose from, in words; see `Record.either`."""
    return ", or ".join(" and ".join(group) for group in groups)


def choice_errors(value: Mapping[str, Any], groups: tuple[tuple[str, ...], ...], pointer: str) -> list[FieldError]:
    """Return the faults of the choice between groups of fields; see `Record.either`."""
    begun = [group for group in groups if not value.keys().isdisjoint(group)]
    if not begun:
        return [FieldError(f"{pointer}/{groups[0][0]}", "required", f"Give {choice_text(groups)}.")]
    if len(begun) == 1:  # most requests: no more calls than these
        return [FieldError(f"{pointer}/{name}", "required", "This is required.") for name in begun[0] if name not in value]
    chosen = next((group for group in begun if any(name in value for name in _own(group, groups))), begun[0])
    others = [name for group in begun for name in group if name in value and name not in chosen]
    if others:
        known = next((name for name in _own(chosen, groups) if name in value), chosen[0])
        return [FieldError(f"{pointer}/{others[0]}", "not-both", f"Give either this or {known}, not both.")]
    return [FieldError(f"{pointer}/{name}", "required", "This is required.") for name in chosen if name not in value]


def _own(group: tuple[str, ...], groups: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    """Return the fields of the group that no other group has."""
    return tuple(name for name in group if not any(name in other for other in groups if other is not group))


def _unknown(value: dict[str, Any], shape: Shape[Any], pointer: str, *, but: Collection[str] = frozenset()) -> list[FieldError]:
    names = ", ".join(sorted(each.json_name for each in shape.fields))
    detail = f"This field does not exist; the fields are {names}." if names else "This object takes no fields."
    return [
        FieldError(pointer + pointer_part(key), "unknown-field", detail) for key in value if key not in shape.names or key in but
    ]
