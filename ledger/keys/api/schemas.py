"""What the calls about API keys take and return."""

from dataclasses import dataclass
from typing import Annotated, Final

from drf_spectacular.utils import OpenApiExample, OpenApiParameter
from rest_framework import serializers

from ledger.keys.api_keys import ApiKeyRequest, RotationRequest
from ledger.keys.models import KEY_STATES
from ledger.records import Shape
from ledger.responses import ResponseSchema, computed
from ledger.rest.kit.queries import ListQuery
from ledger.rest.schemas.response_schemas import Whole, instant
from ledger.scopes import SCOPES
from ledger.values import MAX_ACTOR_CHARACTERS, MAX_SEQUENCE, Choice, Holder, Text

KEY_PATH = OpenApiParameter(
    "key_id",
    {"type": "integer", "format": "int64", "minimum": 1, "maximum": MAX_SEQUENCE},
    OpenApiParameter.PATH,
    description="The number of the API key.",
    examples=[OpenApiExample("key", 7)],
)

NEW_KEY: Final = Shape(ApiKeyRequest, name="NewApiKey", without={"actor"})
ROTATION: Final = Shape(RotationRequest, name="Rotation", without={"actor", "id"})


@dataclass(frozen=True, kw_only=True)
class KeysQuery(ListQuery):
    """Which API keys."""

    state: Annotated[str | None, Choice(KEY_STATES, "Only keys in this state.")] = None
    name: Annotated[str | None, Text("Only the key of this name.", least=1, most=100)] = None
    holder_id: Annotated[str | None, Holder("Only keys that are confined to this holder.")] = None
    created_by: Annotated[
        str | None, Text("Only keys that this actor made, such as key:deploy.", least=1, most=MAX_ACTOR_CHARACTERS)
    ] = None


class OwnKeySerializer(ResponseSchema):
    """The API key of the request, and what it may do."""

    id = Whole(min_value=1, help_text="Its number, by which /v1/keys/{key_id} finds it.")
    name = serializers.CharField(help_text="Its name.")
    actor = serializers.CharField(help_text="The actor of the key's entries.")
    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=SCOPES),
        help_text="All scopes of the key, including those that another of its scopes implies.",
    )
    holder_id = serializers.CharField(allow_null=True, help_text="The only holder that the key may use; null for all holders.")
    labels = serializers.DictField(
        child=serializers.CharField(), help_text="The labels that all it writes carries, by name; empty for a key without labels."
    )
    expires_at = instant(allow_null=True, help_text="The instant from which the API refuses it; null for never.")
    requests_per_second = Whole(
        allow_null=True, min_value=1, help_text="How many of its calls a second one process accepts; null for no limit."
    )
    concurrent_requests = Whole(
        allow_null=True, min_value=1, help_text="How many of its calls at the same time one process accepts; null for no limit."
    )


class ApiKeySerializer(ResponseSchema):
    """An API key, without its secret."""

    id = Whole(min_value=1, help_text="Its number.")
    name = serializers.CharField(help_text="Its name; unique, even among keys that have ended.")
    actor = serializers.CharField(help_text="The actor of the key's entries.")
    prefix = serializers.CharField(help_text="The first characters of its secret, by which a person recognises it.")
    scopes = computed(
        serializers.ListField(child=serializers.ChoiceField(choices=SCOPES), help_text="The scopes that it was given."),
        "granted_scopes",
    )
    holder_id = serializers.CharField(allow_null=True, help_text="The only holder that it may use; null for all holders.")
    labels = serializers.DictField(
        child=serializers.CharField(), help_text="The labels that all it writes carries, by name; empty for a key without labels."
    )
    requests_per_second = Whole(
        allow_null=True, min_value=1, help_text="How many calls a second one process accepts; null for the limit in the settings."
    )
    concurrent_requests = Whole(
        allow_null=True,
        min_value=1,
        help_text="How many calls at the same time one process accepts; null for the limit in the settings.",
    )
    state = serializers.ChoiceField(
        choices=KEY_STATES, help_text="`active` if it still works; `expired` and `revoked` are final."
    )
    created_at = instant(help_text="When it was made.")
    created_by = serializers.CharField(help_text="Who made it: the actor of the API key, or the operator.")
    parent_id = Whole(allow_null=True, min_value=1, help_text="The key that made it; null for one that an operator made.")
    expires_at = instant(allow_null=True, help_text="When it expires; null for never.")
    rotated_at = instant(allow_null=True, help_text="When it got its current secret; null for its first secret.")
    former_until = instant(allow_null=True, help_text="Until when the former secret is valid; null if it ended at the rotation.")
    revoked_at = instant(allow_null=True, help_text="When it was revoked; null if it was not.")
    revoked_by = serializers.CharField(
        allow_null=True,
        help_text="Who revoked it: the actor of the API key, or the operator; null if it was not revoked, or not recorded.",
    )
    last_used_at = instant(
        allow_null=True, help_text="When the key was last used, to 5 minutes, recorded a moment later; null for never."
    )


class ApiKeyWithSecretSerializer(ApiKeySerializer):
    """An API key that has a new secret. This response alone has it: the server stores no secret."""

    id = Whole(min_value=1, allow_null=True, help_text="Its number; null in a dry run.")
    secret = serializers.CharField(
        allow_null=True,
        help_text="What `Authorization: Bearer` takes. Null in a dry run, and when the response is repeated "
        "(`Idempotency-Replayed: true`): a client that has lost the secret rotates the key.",
    )
