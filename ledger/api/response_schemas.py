"""What the ledger's calls respond with. Each field is declared once, for the body and for the OpenAPI document."""

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from rest_framework import serializers

from ledger.api.kit.writing.rendering import in_key_order, time_text
from ledger.api.kit.writing.responses import Read, ResponseSchema, computed
from ledger.rules import KINDS
from ledger.rules.holds import HOLD_STATES
from ledger.rules.instants import to_text
from ledger.rules.lots import LOT_STATES
from ledger.rules.texts.explanations import DECISIONS

# Fields ----------------------------------------------------------------------------------------------


class _Whole(serializers.IntegerField):
    """A 64-bit integer, for the document."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("min_value", 0)
        options.setdefault("max_value", 2**63 - 1)
        super().__init__(**options)


def _time(
    value: Read | str | None = None, *, as_text: Callable[[Any], str] = time_text, **options: Any
) -> serializers.DateTimeField:
    """An instant, as RFC 3339 in UTC."""
    return computed(serializers.DateTimeField(**options), value, as_text=as_text)


def _time_of_us(name: str, **options: Any) -> serializers.DateTimeField:
    """An instant out of an attribute with microseconds."""
    return _time(name, as_text=to_text, **options)


# Entries ---------------------------------------------------------------------------------------------


class DrawSerializer(ResponseSchema):
    """What an entry took from a lot, or gave back to it."""

    grant = computed(_Whole(help_text="The lot, by the sequence of its grant."), itemgetter(0))
    amount = computed(_Whole(help_text="How many credits."), itemgetter(1))


class CounterpartSerializer(ResponseSchema):
    """The other side of a transfer."""

    holder_id = computed(serializers.CharField(help_text="The other holder."), itemgetter("holder_id"))
    sequence = computed(
        _Whole(required=False, min_value=1, help_text="On the side that got them: the `transfer_out` entry."),
        lambda other: other.get("sequence"),
    )
    grant = computed(
        _Whole(required=False, min_value=1, help_text="On the side that got them: the lot that they came from."),
        lambda other: other.get("grant"),
    )


class EntryRatingSerializer(ResponseSchema):
    """What an amount came from."""

    rate = computed(serializers.CharField(help_text="The rate."), itemgetter("rate"))
    version = computed(serializers.IntegerField(help_text="Its version."), itemgetter("version"))
    quantity = computed(_Whole(min_value=1, help_text="How much of what it prices."), itemgetter("quantity"))


class EntrySerializer(ResponseSchema):
    """One immutable row of the ledger."""

    holder_id = serializers.CharField(help_text="Who owns the credits.")
    credit_type = serializers.CharField(help_text="What is counted.")
    sequence = _Whole(min_value=1, help_text="The entry's number in its account, without gaps.")
    kind = serializers.ChoiceField(choices=[(kind, kind) for kind in KINDS], help_text="What happened.")
    amount = _Whole(min_value=-(2**63), help_text="What it did to `balance`, signed.")
    balance = _Whole(min_value=-(2**63), help_text="The balance after it; below zero only where an overdraft was agreed.")
    held = _Whole(help_text="The credits set aside after it.")
    drawn = DrawSerializer(many=True, help_text="Which lots it took from or gave back to, in order.")
    refers_to = _Whole(allow_null=True, help_text="The spend or grant that it refers to, by sequence.")
    effective_at = _time_of_us("effective_us", help_text="When it counts from.")
    recorded_at = _time_of_us("recorded_us", help_text="When it was written.")
    actor = serializers.CharField(help_text="Who did it.")
    reason = serializers.CharField(help_text="Why, in the caller's words.")
    reference = serializers.CharField(help_text="What it belongs to in the caller's books.")
    metadata = computed(serializers.DictField(help_text="The caller's own."), as_text=in_key_order)
    idempotency_key = serializers.CharField(
        allow_null=True, help_text="The key of the request that made it; null on entries that the ledger books itself."
    )
    digest = computed(
        serializers.RegexField(r"^[0-9a-f]{64}$", help_text="SHA-256 over the previous entry's digest and this entry."),
        as_text=bytes.hex,
    )
    expires_at = _time_of_us("hold_expires_us", required=False, help_text="Of a hold: when it expires.")
    counterpart = computed(CounterpartSerializer(required=False, help_text="Of a transfer: its other side."), "other_side")
    rating = EntryRatingSerializer(required=False, help_text="Where the amount came from a rate: which, and for how much.")
    refunded_total = _Whole(required=False, help_text="Of a refund: how much of the spend has been given back in all.")
    overdraft = _Whole(required=False, help_text="How far below zero spends may take the balance, where that was ever agreed.")
    accepts_transfers = serializers.BooleanField(
        required=False, help_text="Of an adjustment of incoming transfers: whether the account accepts them from then on."
    )


class IncomingTransfersBodySerializer(ResponseSchema):
    """Whether others may transfer credits into an account."""

    holder_id = serializers.CharField(help_text="Who owns the account.")
    credit_type = serializers.CharField(help_text="What it counts.")
    accepted = serializers.BooleanField(help_text="False if a transfer to the account is refused.")
    changed_by = _Whole(allow_null=True, min_value=1, help_text="The entry that said so last; null if none did.")
    changed_at = _time(allow_null=True, help_text="When that was recorded.")


# Balances --------------------------------------------------------------------------------------------


class LotSerializer(ResponseSchema):
    """What is left of a grant."""

    grant = _Whole(min_value=1, help_text="The grant, by sequence.")
    remaining = _Whole(min_value=1, help_text="Credits left in it.")
    effective_at = _time_of_us("effective_us", help_text="When it can be spent from.")
    expires_at = _time_of_us("expires_us", allow_null=True, help_text="When it expires; null for never.")
    priority = serializers.IntegerField(help_text="Lower ones are spent first.")
    source = serializers.ChoiceField(  # type: ignore[assignment]
        choices=["purchased", "promotional"], help_text="Paid for, or given."
    )
    state = serializers.ChoiceField(
        choices=LOT_STATES, help_text="Whether it can be spent. A lot that has expired is listed until that is booked."
    )


class ExpirySerializer(ResponseSchema):
    """The soonest expiry among the open lots."""

    at = _time(help_text="When.")
    amount = _Whole(min_value=1, help_text="How many credits expire then, if they are not spent before.")


class HoldBodySerializer(ResponseSchema):
    """An open hold."""

    hold = _Whole(min_value=1, help_text="The hold, by the sequence of its entry.")
    amount = _Whole(min_value=1, help_text="What it still sets aside.")
    expires_at = _time_of_us("expires_us", help_text="When the hold expires.")
    state = serializers.ChoiceField(
        choices=HOLD_STATES, help_text="An expired hold holds nothing; the list contains it until the ledger books its expiry."
    )


class AccountBalanceSerializer(ResponseSchema):
    """An account's state."""

    holder_id = serializers.CharField(help_text="Who owns the credits.")
    credit_type = serializers.CharField(help_text="What is counted.")
    available = _Whole(help_text="What can be spent at `as_of`.")
    balance = _Whole(
        min_value=-(2**63),
        help_text="The sum of all entries: `available`, and lots that are not effective yet or expired and not booked.",
    )
    held = _Whole(help_text="Credits set aside: the sum of `holds`.")
    sequence = _Whole(help_text="The last entry; 0 for a holder never seen.")
    as_of = _time(help_text="The instant that this is true for.")
    lots = computed(LotSerializer(many=True, help_text="The lots, in the order in which they are spent."), "shown_lots")
    next_expiry = ExpirySerializer(allow_null=True, help_text="Null if nothing expires.")
    holds = computed(HoldBodySerializer(many=True, help_text="The holds, the oldest first."), "shown_holds")
    overdraft = _Whole(help_text="How far below zero spends may take the balance; `available` has it in.")
    owed = _Whole(help_text="How much of the overdraft is used: the lots add up to `balance` and this.")


# Refusals, rates, batches ----------------------------------------------------------------------------


class RefusalSerializer(ResponseSchema):
    """A request that was refused."""

    idempotency_key = serializers.CharField(help_text="The key of the request; the same key gets the same refusal again.")
    operation = serializers.CharField(help_text="What was asked.")
    problem = serializers.DictField(help_text="The problem that the request got.")
    recorded_at = _time(help_text="When.")
    actor = serializers.CharField(help_text="Who asked.")


class RateBodySerializer(ResponseSchema):
    """A version of a rate."""

    code = serializers.CharField(help_text="Its name.")
    credit_type = serializers.CharField(help_text="What is counted.")
    version = serializers.IntegerField(min_value=1, help_text="1, 2, 3 …; the highest counts.")
    price = _Whole(min_value=1, help_text="This many credits …")
    per = _Whole(min_value=1, help_text="Units per price; the ledger rounds up to whole credits.")
    published_at = _time(help_text="From when on it counted.")
    published_by = serializers.CharField(help_text="Who made it.")
    reason = computed(serializers.CharField(help_text="Why."), "published_because")


class QuoteBodySerializer(ResponseSchema):
    """What a quantity costs now."""

    amount = _Whole(min_value=1, help_text="In credits.")
    rating = computed(EntryRatingSerializer(help_text="What an entry would keep."), lambda rating: rating)


class ResultSerializer(serializers.Serializer):
    """What came of one operation of a batch."""

    status = serializers.IntegerField(help_text="As of the call by itself: 201, 402 …; 424 when another operation failed.")
    replayed = serializers.BooleanField(required=False, help_text="True when the operation's key had been used before.")
    body = EntrySerializer(required=False, help_text="The entry.")
    problem = serializers.DictField(required=False, help_text="Or the problem.")


class BatchBodySerializer(serializers.Serializer):
    """What came of a batch."""

    failed = serializers.IntegerField(help_text="How many operations have a problem.")
    results = ResultSerializer(many=True, help_text="One per operation, in their order.")


# Explanations ----------------------------------------------------------------------------------------


class StateLotSerializer(serializers.Serializer):
    """A lot of an account's state."""

    grant = _Whole(min_value=1, help_text="The grant, by sequence.")
    remaining = _Whole(min_value=1, help_text="Credits left in it.")
    effective_at = serializers.DateTimeField(help_text="When it can be spent from.")
    expires_at = serializers.DateTimeField(allow_null=True, help_text="When it expires; null for never.")
    priority = serializers.IntegerField(help_text="Lower ones are spent first.")
    source = serializers.CharField(help_text="purchased or promotional.")  # type: ignore[assignment]
    state = serializers.CharField(help_text="spendable, not_yet_effective, or expired and not booked.")


class StateSerializer(serializers.Serializer):
    """An account's state at the instant of an entry."""

    sequence = _Whole(help_text="The last entry.")
    available = _Whole(help_text="What could be spent.")
    balance = _Whole(min_value=-(2**63), help_text="The balance.")
    held = _Whole(help_text="Credits set aside.")
    overdraft = _Whole(help_text="How far below zero spends may take the balance.")
    owed = _Whole(help_text="How much of it is used: the lots add up to the balance and this.")
    lots = StateLotSerializer(many=True, help_text="The open lots, in the order of use.")
    holds = HoldBodySerializer(many=True, help_text="The open holds.")


class LotDecisionSerializer(serializers.Serializer):
    """What became of one lot, and why."""

    grant = _Whole(help_text="The lot.")
    amount = _Whole(help_text="How many of its credits; 0 where it was passed over.")
    decision = serializers.ChoiceField(
        choices=[(name, name) for name in DECISIONS], help_text="What was done with it, or why it was passed over."
    )
    text = serializers.CharField(help_text="For people.")


class BookedSerializer(serializers.Serializer):
    """What the same writer booked of itself, because it had come due."""

    sequence = _Whole(min_value=1, help_text="The entry.")
    kind = serializers.CharField(help_text="One that the ledger books by itself: expire, release or adjust.")
    amount = _Whole(min_value=-(2**63), help_text="What it did to the balance.")
    refers_to = _Whole(allow_null=True, help_text="Which hold or grant.")
    effective_at = serializers.DateTimeField(help_text="When it counted from.")
    text = serializers.CharField(help_text="For people.")


class ReferredSerializer(serializers.Serializer):
    """The spend, hold or grant that an entry refers to, and what is left of it."""

    sequence = _Whole(min_value=1, help_text="The entry.")
    kind = serializers.CharField(help_text="What it is.")
    amount = _Whole(min_value=-(2**63), help_text="What it did to the balance.")
    text = serializers.CharField(help_text="For people.")
    taken = _Whole(required=False, help_text="Of a spend: what it took.")
    returned_before = _Whole(required=False, help_text="Of a spend: what had been given back before.")
    returned = _Whole(required=False, help_text="Of a spend: what is given back in all.")
    refundable = _Whole(required=False, help_text="Of a spend: what can still be given back.")
    held_before = _Whole(required=False, help_text="Of a hold: what it set aside before.")
    held = _Whole(required=False, help_text="Of a hold: what it still sets aside.")
    expires_at = serializers.DateTimeField(required=False, allow_null=True, help_text="Of a hold that is still open.")
    remaining = _Whole(required=False, help_text="Of a grant: what is left of its lot.")


class ExplanationSerializer(serializers.Serializer):
    """Why an entry is as it is."""

    sequence = _Whole(min_value=1, help_text="The entry.")
    kind = serializers.CharField(help_text="Its kind.")
    text = serializers.CharField(help_text="What happened, for people.")
    before = StateSerializer(help_text="The account when it was decided.")
    after = StateSerializer(help_text="The account after it.")
    lots = LotDecisionSerializer(many=True, help_text="Each lot that was used or passed over, in order.")
    booked_before = BookedSerializer(many=True, help_text="Due changes that the same writer booked just before.")
    booked_after = BookedSerializer(many=True, help_text="What followed from it and was booked just after.")
    refers_to = ReferredSerializer(allow_null=True, help_text="The entry that this one refers to, or null.")
