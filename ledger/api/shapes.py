"""What the ledger's calls answer with: the bodies, and their shapes for the OpenAPI document."""

from typing import Any

from rest_framework import serializers

from ledger.api.rendering import in_key_order, optional_time_text, time_text
from ledger.rules import KINDS, Entry, Lot
from ledger.selectors import Balance

# Bodies ----------------------------------------------------------------------------------------------


def entry_body(entry: Entry) -> dict[str, Any]:
    """Return an entry as it is answered; the same entry always gives the same bytes."""
    return {
        "holder_id": entry.holder_id,
        "credit_type": entry.credit_type,
        "sequence": entry.sequence,
        "kind": entry.kind,
        "amount": entry.amount,
        "balance": entry.balance,
        "held": entry.held,
        "drawn": [{"grant": grant, "amount": amount} for grant, amount in entry.drawn],
        "closes": entry.closes,
        "effective_at": time_text(entry.effective_at),
        "recorded_at": time_text(entry.recorded_at),
        "actor": entry.actor,
        "reason": entry.reason,
        "reference": entry.reference,
        "metadata": in_key_order(entry.metadata) if entry.metadata else {},
        "idempotency_key": entry.idempotency_key,
        "digest": entry.digest.hex(),
    }


def lot_body(lot: Lot) -> dict[str, Any]:
    """Return an open lot as it is answered."""
    return {
        "grant": lot.grant,
        "remaining": lot.remaining,
        "effective_at": time_text(lot.effective_at),
        "expires_at": optional_time_text(lot.expires_at),
        "priority": lot.priority,
        "source": lot.source,
    }


def balance_body(balance: Balance) -> dict[str, Any]:
    """Return an account's state as it is answered."""
    expiry = balance.next_expiry
    return {
        "holder_id": balance.holder_id,
        "credit_type": balance.credit_type,
        "available": balance.available,
        "balance": balance.balance,
        "held": balance.held,
        "sequence": balance.sequence,
        "as_of": time_text(balance.as_of),
        "lots": [lot_body(lot) for lot in balance.lots],
        "next_expiry": None if expiry is None else {"at": time_text(expiry.at), "amount": expiry.amount},
    }


# Shapes ----------------------------------------------------------------------------------------------


class _Whole(serializers.IntegerField):
    """A 64-bit integer, for the document."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("min_value", 0)
        options.setdefault("max_value", 2**63 - 1)
        super().__init__(**options)


class DrawSerializer(serializers.Serializer):
    """What an entry took from a lot, or gave back to it."""

    grant = _Whole(help_text="The lot, by the sequence of its grant.")
    amount = _Whole(help_text="How many credits.")


class EntrySerializer(serializers.Serializer):
    """One immutable row of the ledger."""

    holder_id = serializers.CharField(help_text="Who owns the credits.")
    credit_type = serializers.CharField(help_text="What is counted.")
    sequence = _Whole(min_value=1, help_text="The entry's number in its account, without gaps.")
    kind = serializers.ChoiceField(choices=[(kind, kind) for kind in KINDS], help_text="What happened.")
    amount = _Whole(min_value=-(2**63), help_text="What it did to `balance`, signed.")
    balance = _Whole(help_text="The balance after it.")
    held = _Whole(help_text="The credits set aside after it.")
    drawn = DrawSerializer(many=True, help_text="Which lots it took from or gave back to, in order.")
    closes = _Whole(allow_null=True, help_text="The spend or grant that it refers to, by sequence.")
    effective_at = serializers.DateTimeField(help_text="When it counts from.")
    recorded_at = serializers.DateTimeField(help_text="When it was written.")
    actor = serializers.CharField(help_text="Who did it.")
    reason = serializers.CharField(help_text="Why, in the caller's words.")
    reference = serializers.CharField(help_text="What it belongs to in the caller's books.")
    metadata = serializers.DictField(help_text="The caller's own.")
    idempotency_key = serializers.CharField(allow_null=True, help_text="The request that it answers.")
    digest = serializers.RegexField(r"^[0-9a-f]{64}$", help_text="SHA-256 over the previous entry's digest and this entry.")


class LotSerializer(serializers.Serializer):
    """What is left of a grant."""

    grant = _Whole(min_value=1, help_text="The grant, by sequence.")
    remaining = _Whole(min_value=1, help_text="Credits left in it.")
    effective_at = serializers.DateTimeField(help_text="When it can be spent from.")
    expires_at = serializers.DateTimeField(allow_null=True, help_text="When it expires; null for never.")
    priority = serializers.IntegerField(help_text="Lower ones are spent first.")
    source = serializers.ChoiceField(  # type: ignore[assignment]
        choices=["purchased", "promotional"], help_text="Paid for, or given."
    )


class ExpirySerializer(serializers.Serializer):
    """The soonest expiry among the open lots."""

    at = serializers.DateTimeField(help_text="When.")
    amount = _Whole(min_value=1, help_text="How many credits expire then, if they are not spent before.")


class BalanceSerializer(serializers.Serializer):
    """An account's state."""

    holder_id = serializers.CharField(help_text="Who owns the credits.")
    credit_type = serializers.CharField(help_text="What is counted.")
    available = _Whole(help_text="What can be spent at `as_of`.")
    balance = _Whole(
        help_text="The sum of all entries: `available`, and lots that are not effective yet or expired and not booked."
    )
    held = _Whole(help_text="Credits set aside by open holds.")
    sequence = _Whole(help_text="The last entry; 0 for a holder never seen.")
    as_of = serializers.DateTimeField(help_text="The instant that this is true for.")
    lots = LotSerializer(many=True, help_text="The open lots, in the order in which they are spent.")
    next_expiry = ExpirySerializer(allow_null=True, help_text="Null if nothing expires.")


class RefusalSerializer(serializers.Serializer):
    """A request that was answered no."""

    idempotency_key = serializers.CharField(help_text="The key that gets this no again.")
    operation = serializers.CharField(help_text="What was asked.")
    problem = serializers.DictField(help_text="The problem body that was answered.")
    recorded_at = serializers.DateTimeField(help_text="When.")
    actor = serializers.CharField(help_text="Who asked.")
