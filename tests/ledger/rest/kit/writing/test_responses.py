"""A response is declared once: the body and its documented schema have the same fields in the same order."""

from operator import itemgetter
from types import SimpleNamespace

from rest_framework import serializers

from ledger.responses import ResponseSchema, computed


class PartSchema(ResponseSchema):
    """A part."""

    name = serializers.CharField()
    size = computed(serializers.IntegerField(), lambda part: part.width * part.height)


class NoteSchema(ResponseSchema):
    """What is read from a mapping."""

    text = computed(serializers.CharField(), itemgetter("words"))


class WholeSchema(ResponseSchema):
    """A body with every kind of member."""

    ref = serializers.CharField()
    parts = PartSchema(many=True)
    first = PartSchema(allow_null=True)
    note = computed(NoteSchema(required=False), lambda whole: whole.stored)
    owner = serializers.CharField(allow_null=True)
    remark = computed(serializers.CharField(required=False), as_text=str.upper)


class LongerSchema(WholeSchema):
    """What it inherits comes first."""

    added = serializers.CharField()


def new_part(name: str) -> SimpleNamespace:
    """An object that a nested schema writes."""
    return SimpleNamespace(name=name, width=2, height=3)


def new_whole(**changes: object) -> SimpleNamespace:
    """An object that has what the schema writes, with some values changed."""
    known = {
        "ref": "w",
        "parts": [new_part("a"), new_part("b")],
        "first": new_part("a"),
        "stored": None,
        "owner": None,
        "remark": None,
    }
    return SimpleNamespace(**known | changes)


def test_a_body_has_the_fields_in_their_order_and_leaves_out_optional_ones_without_a_value() -> None:
    assert list(WholeSchema.body(new_whole()).items()) == [
        ("ref", "w"),
        ("parts", [{"name": "a", "size": 6}, {"name": "b", "size": 6}]),
        ("first", {"name": "a", "size": 6}),
        ("owner", None),
    ]


def test_optional_fields_with_a_value_stand_in_their_place() -> None:
    body = WholeSchema.body(new_whole(stored={"words": "kept"}, remark="new", first=None))
    assert list(body) == ["ref", "parts", "first", "note", "owner", "remark"]
    assert (body["first"], body["note"], body["remark"]) == (None, {"text": "kept"}, "NEW")


def test_given_members_come_from_the_caller_as_they_are() -> None:
    body = WholeSchema.body(new_whole(), owner="ada", parts=[])
    assert (body["owner"], body["parts"]) == ("ada", [])


def test_a_schema_that_inherits_another_adds_its_fields_behind() -> None:
    assert list(LongerSchema.body(new_whole(added="x")))[-1] == "added"
    assert list(LongerSchema().fields) == ["ref", "parts", "first", "note", "owner", "remark", "added"]
