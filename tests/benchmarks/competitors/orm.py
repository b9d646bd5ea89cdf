"""The straightforward way: a DRF view with a serializer, select_for_update on the holder, three more ORM calls.

The same facts, lots and digest.
"""

import hashlib
import json
from typing import Any

from django.db import transaction
from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.rest.kit.authentication import LEDGER_SPEND
from tests.benchmarks.competitors.keys import KeyedView
from tests.benchmarks.competitors.models import Entry, Holder


class SpendInput(serializers.Serializer):
    """What a spend takes."""

    amount = serializers.IntegerField(min_value=1, max_value=2**53 - 1)
    credit_type = serializers.CharField(max_length=32, default="credits")
    reason = serializers.CharField(max_length=500, default="", allow_blank=True)
    reference = serializers.CharField(max_length=200, default="", allow_blank=True)
    metadata = serializers.JSONField(default=dict)


class EntryOutput(serializers.ModelSerializer):
    """What is answered."""

    class Meta:
        model = Entry
        fields = [
            "holder_id", "credit_type", "sequence", "kind", "amount", "balance", "drawn", "recorded_at", "actor", "reason",
            "reference", "idempotency_key", "digest",
        ]  # fmt: skip


class OrmSpends(KeyedView):
    """Credits are taken out."""

    scopes = {"post": LEDGER_SPEND}

    def post(self, request: Request, holder: str) -> Response:
        """Spend credits of the holder."""
        data = SpendInput(data=request.data)
        data.is_valid(raise_exception=True)
        entry = spend(holder, request.headers["Idempotency-Key"], request.auth.actor, data.validated_data)
        return Response(EntryOutput(entry).data, status=201)


def spend(holder_id: str, key: str, actor: str, asked: dict[str, Any]) -> Entry:
    """Take credits out of the holder's lots, or give the first answer again."""
    request_digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
    with transaction.atomic():
        holder = Holder.objects.select_for_update().get(pk=holder_id)
        answered = Entry.objects.filter(holder_id=holder_id, idempotency_key=key).first()
        if answered is not None:
            if answered.request_digest != request_digest:
                raise serializers.ValidationError("the key belongs to another request")
            return answered
        last = Entry.objects.filter(holder_id=holder_id, credit_type=asked["credit_type"]).order_by("-sequence").first()
        if last is None or last.balance < asked["amount"]:
            raise serializers.ValidationError("not enough credits")
        lots, drawn = take(last.lots, asked["amount"])
        entry = Entry(
            holder=holder, credit_type=asked["credit_type"], sequence=last.sequence + 1, kind="spend", amount=-asked["amount"],
            balance=last.balance - asked["amount"], lots=lots, drawn=drawn, idempotency_key=key, request_digest=request_digest,
            recorded_at=timezone.now(), actor=actor, reason=asked["reason"], reference=asked["reference"],
            previous_digest=last.digest,
        )  # fmt: skip
        entry.digest = digest(entry)
        entry.save(force_insert=True)
    return entry


def take(lots: list[list[Any]], amount: int) -> tuple[list[list[Any]], list[list[int]]]:
    """The lots that are left, in order, and what was drawn from which."""
    left, drawn = [], []
    for grant, remaining, *terms in lots:
        part = min(amount, remaining)
        amount -= part
        if part:
            drawn.append([grant, part])
        if part < remaining:
            left.append([grant, remaining - part, *terms])
    return left, drawn


def digest(entry: Entry) -> str:
    """SHA-256 over the entry before and the facts of this one."""
    facts = [
        entry.previous_digest, entry.holder_id, entry.credit_type, entry.sequence, entry.kind, entry.amount, entry.balance,
        entry.lots, entry.drawn, entry.idempotency_key, entry.request_digest, entry.recorded_at.isoformat(), entry.actor,
        entry.reason, entry.reference,
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
