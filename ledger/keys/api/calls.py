"""API keys: who is asking and what that key may do, and the keys that a key makes, rotates and revokes."""

from collections.abc import Callable
from typing import Any, Final

from django.http import HttpRequest

from ledger.conf import KEY_CONCURRENT_REQUESTS, KEY_REQUESTS_PER_SECOND
from ledger.keys import delegation, reads
from ledger.keys.api import examples
from ledger.keys.api.schemas import (
    KEY_PATH,
    NEW_KEY,
    ROTATION,
    ApiKeySerializer,
    ApiKeyWithSecretSerializer,
    KeysQuery,
    OwnKeySerializer,
)
from ledger.keys.delegation import KeyAnswer, KeyCall, Made
from ledger.keys.errors import KeyEnded, KeyExceedsOwn, KeyNameTaken, KeyRotating
from ledger.keys.models import ApiKey
from ledger.operators import staff_log
from ledger.records import Record, Shape, shape_of
from ledger.rest.etags import refuse_condition
from ledger.rest.kit import cursors
from ledger.rest.kit.authentication import KEYS_ADMIN
from ledger.rest.kit.endpoint import Endpoint
from ledger.rest.kit.parsing import read, read_body
from ledger.rest.kit.queries import DryRunQuery, read_query
from ledger.rest.kit.rendering import Response, json_response, write_response
from ledger.rest.kit.request_errors import NotFound, Unauthenticated
from ledger.rest.kit.requests import dry_run_key, idempotency_key
from ledger.rest.kit.schema import RequestBody, ResponseBody, operation, page_response
from ledger.scopes import SCOPES

KEYS = "API keys"
NOTHING: Final = shape_of(Record)
FIELDS: Final = tuple(ApiKeySerializer._declared_fields)
EXCEEDS: Final = KeyExceedsOwn(exceeds=["scopes"])
ENDED: Final = KeyEnded(how="revoked")
WITHIN: Final = (
    "Its scopes, holder, labels, expiry and limits must stay within those of the key of the request: else 403 `key-exceeds-own`."
)


Act = Callable[[ApiKey, Any, Any], Made]


class OwnKey(Endpoint):
    """Reads the key of the request."""

    in_loop = frozenset({"get"})

    @operation(
        "readOwnKey",
        "Read your key",
        "The API key of the request: its scopes, holder, labels, expiry and limits. Every key may make this "
        "call. The response shows a change of the key within 2 s.",
        tag=KEYS,
        scope="",
        responses={200: ResponseBody(OwnKeySerializer, examples.OWN_KEY, "The key.")},
    )
    def get(self, request: HttpRequest) -> Response:
        return json_response(
            OwnKeySerializer.body(
                self.key,
                scopes=[scope for scope in SCOPES if self.key.may(scope)],
                requests_per_second=self.key.requests_per_second or KEY_REQUESTS_PER_SECOND.value or None,
                concurrent_requests=self.key.concurrent_requests or KEY_CONCURRENT_REQUESTS.value or None,
            )
        )


class KeyWrite(Endpoint):
    """A change of an API key, once per Idempotency-Key."""

    dry_run: bool

    def change(self, request: HttpRequest, shape: Shape[Any], act: Act, key_id: int | None = None) -> KeyAnswer:
        """Read the body, change a key, and return the answer.

        Args:
            act: takes the key of the request, the key that the path names, and what was read, with the actor.
            key_id: in the path; None for a new key.
        """
        self.dry_run = dry_run = read_query(DryRunQuery, request)["dry_run"]
        key = dry_run_key(request) if dry_run else idempotency_key(request)
        refuse_condition(request)
        fields = read(shape, {} if self.takes_nothing and _has_no_body(request) else read_body(request))
        asked = shape.make(fields | {"id": key_id, "actor": self.key.actor})
        call = KeyCall(
            operation=type(self).__name__.lower(),
            secret_digest=self.key.digest,
            confined_to=self.key.holder_id or "",
            actor=self.key.actor,
            idempotency_key=key,
            fields={name: fields[name] for name in shape.names if name in fields},
            target_id=key_id,
            request_id=self.request_id,
            dry_run=dry_run,
        )

        def seen(asker: ApiKey | None, target: ApiKey | None) -> Made:
            if asker is None:  # it has ended since this process looked it up
                raise Unauthenticated
            if key_id is not None and (target is None or not self._sees(target)):
                raise NotFound
            return act(asker, target, asked)

        with staff_log.during(request):
            return delegation.change_once(call, seen, ApiKeySerializer.body)

    def _sees(self, target: ApiKey) -> bool:
        return self.key.sees(target.holder_id or "") and self.key.labels.items() <= target.labels.items()

    def respond(self, answer: KeyAnswer, status: int, **more: Any) -> Response:
        """Return the answer, in the order of its members; stored ones have another, and those of earlier releases have fewer."""
        body = {name: answer.body[name] for name in FIELDS if name in answer.body} | more
        return write_response(body, replayed=answer.replayed, status=status, location=self.location)


def _has_no_body(request: HttpRequest) -> bool:
    return request.META.get("CONTENT_LENGTH") in (None, "", "0")


class Keys(KeyWrite):
    """API keys are listed, and made."""

    location = "/v1/keys/{id}"

    @operation(
        "listKeys",
        "List API keys",
        "Newest first, including keys that have ended. A key that is confined to a holder sees only the keys of that holder, and "
        "one that is bound to labels only those that have them too.",
        tag=KEYS,
        scope=KEYS_ADMIN,
        with_labels=True,
        query=KeysQuery,
        responses=page_response(ApiKeySerializer, examples.KEY, path="/v1/keys", text="A page of keys."),
    )
    def get(self, request: HttpRequest) -> Response:
        filters = read_query(KeysQuery, request)
        page = cursors.requested_page(request, filters)
        api_keys = reads.api_keys(
            seen_by=self.key.holder_id, with_labels=self.key.labels, **filters, **page.newest_first(), limit=page.rows_wanted
        )
        return json_response(page.response_body(api_keys, keyset=lambda key: (key.pk,), body=ApiKeySerializer.body))

    @operation(
        "createKey",
        "Make an API key",
        f"The response has its secret, once: a repeated response has null in its place. {WITHIN} A key that is confined to a "
        "holder can make keys only for that holder, and one that is bound to labels only keys with these labels and perhaps "
        "more.",
        tag=KEYS,
        scope=KEYS_ADMIN,
        with_labels=True,
        takes=RequestBody(NEW_KEY, {"a key that expires": examples.KEY_BODY, "a member of a team": examples.LABELLED_KEY_BODY}),
        responses={201: ResponseBody(ApiKeyWithSecretSerializer, examples.NEW_KEY, "The key, with its secret.")},
        problems=[EXCEEDS, KeyNameTaken(resource="API key", ref="shop")],
        idempotent=True,
        dry_run=True,
    )
    def post(self, request: HttpRequest) -> Response:
        answer = self.change(request, NEW_KEY, lambda asker, _, asked: delegation.give(asker, asked))
        if self.dry_run:
            return self.respond(answer, 200, id=None, secret=None)
        return self.respond(answer, 201, secret=answer.secret)


class OneKey(Endpoint):
    """One API key."""

    @operation(
        "readKey",
        "Read an API key",
        "Works for a key that has ended, too.",
        tag=KEYS,
        scope=KEYS_ADMIN,
        with_labels=True,
        parameters=[KEY_PATH],
        responses={200: ResponseBody(ApiKeySerializer, examples.KEY, "The key.")},
    )
    def get(self, request: HttpRequest, key_id: int) -> Response:
        key = reads.api_key(key_id, seen_by=self.key.holder_id, with_labels=self.key.labels)
        if key is None:
            raise NotFound
        return json_response(ApiKeySerializer.body(key))


class KeyRotation(KeyWrite):
    """Another secret for an API key."""

    @operation(
        "rotateKey",
        "Rotate an API key",
        "The response has the new secret, once: a repeated response has null in its place. With `former_until`, the current "
        "secret stays valid until then; without it, every earlier secret ends at once. Name, scopes, holder, labels, expiry and "
        f"limits do not change. {WITHIN} A key may always rotate itself.",
        tag=KEYS,
        scope=KEYS_ADMIN,
        with_labels=True,
        parameters=[KEY_PATH],
        takes=RequestBody(ROTATION, {"with an overlap": examples.ROTATION_BODY, "at once": {}}),
        responses={200: ResponseBody(ApiKeyWithSecretSerializer, examples.ROTATED_KEY, "The key, with its new secret.")},
        problems=[EXCEEDS, ENDED, KeyRotating(former_until="2026-02-01T12:00:00.000000Z")],
        idempotent=True,
        dry_run=True,
    )
    def post(self, request: HttpRequest, key_id: int) -> Response:
        answer = self.change(request, ROTATION, delegation.rotate_by, key_id=key_id)
        return self.respond(answer, 200, secret=answer.secret)


class Revocation(KeyWrite):
    """The end of an API key."""

    takes_nothing = True

    @operation(
        "revokeKey",
        "Revoke an API key",
        "From now on, and within 2 s everywhere, its calls get 401. A key that is already revoked does not change. The keys "
        "that it has made stay valid; `?created_by=` lists them. Those of a key that is bound to labels are revoked with it. "
        "Its scopes, holder and labels must stay within those of the key of the request: else 403 `key-exceeds-own`. A key may "
        "always revoke itself.",
        tag=KEYS,
        scope=KEYS_ADMIN,
        with_labels=True,
        parameters=[KEY_PATH],
        responses={200: ResponseBody(ApiKeySerializer, examples.REVOKED_KEY, "The key.")},
        problems=[EXCEEDS],
        idempotent=True,
        dry_run=True,
    )
    def post(self, request: HttpRequest, key_id: int) -> Response:
        answer = self.change(request, NOTHING, lambda asker, target, _: delegation.revoke_by(asker, target), key_id=key_id)
        return self.respond(answer, 200)
