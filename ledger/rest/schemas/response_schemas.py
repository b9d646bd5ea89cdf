"""The responses of the ledger's calls. Each field is declared once, for the body and for the OpenAPI document."""

from collections.abc import Callable
from operator import attrgetter, itemgetter
from typing import Any

from rest_framework import serializers

from ledger.json_values import in_key_order, time_text
from ledger.responses import Read, ResponseSchema, computed
from ledger.rules.budget_states import MODES
from ledger.rules.budget_states import SCOPES as SCOPES_OF_BUDGETS
from ledger.rules.budget_windows import WINDOWS
from ledger.rules.explanations import DECISIONS
from ledger.rules.instants import to_text
from ledger.rules.kinds import KINDS
from ledger.rules.lots import LOT_SOURCES, SOURCES
from ledger.rules.overage import OVERAGE_UNITS
from ledger.rules.recurring_terms import EXPIRIES, UNITS
from ledger.values import HOLD_STATES, LOT_STATES, MAX_AMOUNT

# Fields ----------------------------------------------------------------------------------------------


class Whole(serializers.IntegerField):
    """An integer, for the document: a number of an entry, or credits that one operation moves."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**({"min_value": 0, "max_value": MAX_AMOUNT} | options))


class _Sum(Whole):
    """Credits that many operations add up to."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**({"max_value": 2**63 - 1} | options))


def instant(
    value: Read | str | None = None, *, as_text: Callable[[Any], str] = time_text, **options: Any
) -> serializers.DateTimeField:
    """An instant, as RFC 3339 in UTC."""
    return computed(serializers.DateTimeField(**options), value, as_text=as_text)


def _time_of_us(name: str, **options: Any) -> serializers.DateTimeField:
    """An instant out of an attribute with microseconds."""
    return instant(name, as_text=to_text, **options)


# Entries ---------------------------------------------------------------------------------------------


class DrawSerializer(ResponseSchema):
    """The credits that an entry took from a lot, or gave back to it."""

    grant = computed(Whole(help_text="The lot, by the sequence of its grant."), itemgetter(0))
    amount = computed(Whole(help_text="How many credits."), itemgetter(1))


class CounterpartSerializer(ResponseSchema):
    """The other side of a transfer."""

    holder_id = computed(serializers.CharField(help_text="The other holder."), itemgetter("holder_id"))
    sequence = computed(
        Whole(required=False, min_value=1, help_text="On the side that got them: the `transfer_out` entry."),
        lambda other: other.get("sequence"),
    )
    grant = computed(
        Whole(required=False, min_value=1, help_text="On the side that got them: the lot that they came from."),
        lambda other: other.get("grant"),
    )


class EntryRatingSerializer(ResponseSchema):
    """The rate behind an amount."""

    rate = computed(serializers.CharField(help_text="The rate."), itemgetter("rate"))
    version = computed(serializers.IntegerField(help_text="Its version."), itemgetter("version"))
    quantity = computed(
        Whole(min_value=0, required=False, help_text="The quantity that it priced, if the request gave one."),
        lambda rating: rating.get("quantity"),
    )
    quantities = computed(
        serializers.DictField(
            child=serializers.CharField(),
            required=False,
            help_text="Otherwise the quantity of each component of the rate, as a decimal string; 0 for one that was not used.",
        ),
        lambda rating: rating.get("quantities"),
    )


class SaleSerializer(ResponseSchema):
    """The sale of the credits of a grant."""

    paid_minor = computed(Whole(help_text="What was paid, without tax, in minor units."), itemgetter("paid_minor"))
    currency = computed(serializers.CharField(help_text="Its currency, by ISO 4217."), itemgetter("currency"))
    sold_at = computed(
        serializers.DateTimeField(required=False, help_text="When they were sold, if the request said so."),
        lambda sale: sale.get("sold_at"),
    )
    document = computed(
        serializers.CharField(required=False, help_text="What the sale is in the caller's books."),
        lambda sale: sale.get("document"),
    )


class CostChangeSerializer(ResponseSchema):
    """What an entry changed of the cost of a lot."""

    grant = computed(Whole(help_text="The lot, by the sequence of its grant."), "lot")
    change_minor = computed(
        Whole(min_value=-MAX_AMOUNT, help_text="The change in minor units, below zero for what left it."), "minor"
    )
    currency = serializers.CharField(help_text="The currency, by ISO 4217.")


class RecognisedSerializer(ResponseSchema):
    """Revenue that an entry recognised."""

    amount_minor = computed(Whole(min_value=-MAX_AMOUNT, help_text="In minor units; below zero for a refund."), "minor")
    currency = serializers.CharField(help_text="The currency, by ISO 4217.")


class LotCostSerializer(ResponseSchema):
    """What is left of the cost of a lot, the credits in holds included."""

    left_minor = computed(Whole(help_text="In minor units."), "left")
    currency = serializers.CharField(help_text="The currency, by ISO 4217.")


class OverageStateSerializer(ResponseSchema):
    """How many credits may be used beyond those that the account has, in the present period."""

    limit = Whole(allow_null=True, help_text="How many in the period; null for no limit.")
    used = Whole(help_text="How many of them are used; these are invoiced.")
    until = _time_of_us("left_until_us", help_text="When the period ends, or the agreement.")


class EntrySerializer(ResponseSchema):
    """One immutable row of the ledger."""

    id = computed(
        serializers.CharField(help_text="Identifies the entry in the whole ledger: holder, credit type, sequence."),
        attrgetter("holder_id", "credit_type", "sequence"),
        as_text="{0[0]}/{0[1]}/{0[2]}".format,
    )
    holder_id = serializers.CharField(help_text="Who owns the credits.")
    credit_type = serializers.CharField(help_text="What is counted.")
    sequence = Whole(min_value=1, help_text="The entry's number in its account, without gaps.")
    kind = serializers.ChoiceField(choices=[(kind, kind) for kind in KINDS], help_text="What happened.")
    amount = Whole(min_value=-MAX_AMOUNT, help_text="The change of `balance`, signed.")
    balance = _Sum(min_value=-MAX_AMOUNT, help_text="The balance after it; below zero only where an overdraft was agreed.")
    held = _Sum(help_text="The credits set aside after it.")
    drawn = DrawSerializer(many=True, help_text="Which lots it took from or gave back to, in order.")
    refers_to = Whole(allow_null=True, help_text="The spend or grant that it refers to, by sequence.")
    effective_at = _time_of_us("effective_us", help_text="The instant from which it counts.")
    recorded_at = _time_of_us("recorded_us", help_text="When it was written.")
    actor = serializers.CharField(help_text="Who did it.")
    reason = serializers.CharField(help_text="Why, in the caller's words.")
    reference = serializers.CharField(help_text="The caller's id of the related case.")
    metadata = computed(serializers.DictField(help_text="Data of the caller."), as_text=in_key_order)
    idempotency_key = serializers.CharField(
        allow_null=True, help_text="The key of the request that made it; null on entries that the ledger books itself."
    )
    digest = computed(
        serializers.RegexField(r"^[0-9a-f]{64}$", help_text="SHA-256 over the previous entry's digest and this entry."),
        as_text=bytes.hex,
    )
    expires_at = _time_of_us("hold_expires_us", required=False, help_text="Of a hold: when it expires.")
    counterpart = computed(CounterpartSerializer(required=False, help_text="Of a transfer: its other side."), "other_side")
    rating = EntryRatingSerializer(
        required=False, help_text="For an amount that a rate gave: which rate, and for which quantity."
    )
    sale = SaleSerializer(required=False, help_text="Of a grant whose credits were sold: what was paid.")
    cost_changes = computed(
        CostChangeSerializer(many=True, required=False, help_text="What it changed of the costs of lots that were sold."),
        lambda entry: entry.cost_changes or None,
    )
    recognised = computed(
        RecognisedSerializer(
            many=True,
            required=False,
            help_text="Of an entry that used sold credits, or of a refund of it: the revenue, one amount for each currency.",
        ),
        lambda entry: (entry.cost_changes and entry.recognised) or None,
    )
    requested = Whole(
        required=False,
        min_value=0,
        help_text="Of a partial spend: how many credits the request asked for; `amount` says how many it got.",
    )
    refunded_total = Whole(required=False, help_text="Of a refund: how much of the spend has been refunded in all.")
    overdraft = Whole(
        required=False, help_text="How far below zero spends may take the balance, if the account ever had an overdraft."
    )
    postpaid = Whole(
        required=False,
        min_value=1,
        help_text="How many of its credits were overage: used, returned, granted for a spend, or given back.",
    )
    overage = computed(
        OverageStateSerializer(
            required=False,
            help_text="Of an entry that sets or ends an overage, grants on it or gives something back: its state from then on.",
        ),
        "shown_overage",
    )
    accepts_transfers = serializers.BooleanField(
        required=False, help_text="Of an adjustment of incoming transfers: whether the account accepts them from then on."
    )
    frozen = computed(
        serializers.BooleanField(
            required=False, help_text="Of an adjustment that freezes or unfreezes the holder: whether the holder is frozen."
        ),
        "freezes",
    )
    test_clock = _time_of_us(
        "clock_us", required=False, help_text="Of an adjustment that moves the holder's test clock: the time from then on."
    )
    budget = serializers.CharField(required=False, help_text="Of an adjustment that sets or ends a budget: its name.")
    recurring_grant = serializers.CharField(
        required=False,
        help_text="Of an adjustment that sets or ends a recurring grant, or records a period that needed nothing: its name.",
    )


class OverageBodySerializer(ResponseSchema):
    """The overage of an account, and what is used of it in this period."""

    holder_id = serializers.CharField(help_text="Who owns the account.")
    credit_type = serializers.CharField(help_text="What it counts.")
    limit = computed(Whole(allow_null=True, help_text="How many credits a period; null for no limit."), "overage.limit")
    used = computed(Whole(help_text="How many are used in this period."), "overage.used")
    until = _time_of_us("overage.left_until_us", help_text="When the period ends, or the agreement.")
    interval = computed(serializers.ChoiceField(choices=OVERAGE_UNITS, help_text="The unit of a period."), "overage.interval")
    interval_count = computed(Whole(min_value=1, help_text="How many units a period has."), "overage.interval_count")
    anchor_at = _time_of_us("overage.anchor_us", help_text="An instant at which a period begins.")
    time_zone = computed(serializers.CharField(help_text="The zone of its days and clocks."), "overage.time_zone")
    ends_at = _time_of_us("overage.ends_us", allow_null=True, help_text="When it ends; null for no end.")
    reference = computed(serializers.CharField(help_text="What it belongs to, such as a subscription."), "overage.reference")
    set_by = computed(Whole(min_value=1, help_text="The entry that set the terms."), "overage.setting")


class UsedSerializer(serializers.Serializer):
    """What was used by a group."""

    amount = _Sum(help_text="What spends and captures took, less what refunds returned; below 0 if more was returned.")
    postpaid = _Sum(help_text="How much of it was on overage.")
    entries = Whole(help_text="How many spends, captures and refunds.")


class UsageRowSerializer(UsedSerializer):
    """A group, and what it used."""

    group = serializers.ChoiceField(
        choices=["value", "others", "without"],
        help_text="`value`: of one value, of a pair of a value and a rate, or of everything. `others`: of all others. "
        "`without`: of what has no such label.",
    )
    labels = serializers.DictField(
        child=serializers.CharField(allow_null=True), help_text="The label by which it is grouped; null for others and without."
    )
    rate = serializers.CharField(
        allow_null=True, help_text="The rate by which it is grouped; null for others, and for use without a rate."
    )
    day = serializers.DateField(allow_null=True, help_text="The day of the zone, if it is grouped by day.")


_From: Any = type("_From", (serializers.Serializer,), {"from": serializers.DateTimeField(help_text="From when it is counted.")})
"""A field whose name is a word of Python."""


class CreditUsageSerializer(_From, UsedSerializer):
    """What an account used in a span of time: the sum of all results."""

    holder_id = serializers.CharField(help_text="Who owns the account.")
    credit_type = serializers.CharField(help_text="What it counts.")
    to = serializers.DateTimeField(help_text="To when it is counted.")
    zone = serializers.CharField(help_text="The zone whose days count.")
    values_left_out = Whole(help_text="How many values `others` has, at least.")
    results = UsageRowSerializer(many=True, help_text="The groups, those with the most first; of each, its days in order.")


class BudgetUseSerializer(ResponseSchema):
    """What is used of a budget in its present window."""

    subject = serializers.CharField(
        allow_null=True, help_text="The actor, reference or value of the label; null for the account."
    )
    within = serializers.ListField(
        child=serializers.CharField(),
        help_text="Of a budget that nests: the subjects of its parents, the outermost first; otherwise empty.",
    )
    used = _Sum(help_text="Spent, held and transferred in the window, less what holds have released.")
    remaining = Whole(help_text="What is left of the limit.")
    exceeded = computed(
        serializers.BooleanField(
            help_text="Whether more than the limit is used: of a soft budget, or after the limit was lowered."
        ),
        "is_exceeded",
    )
    resets_at = instant(
        allow_null=True,
        help_text="When the whole limit is available again if nothing else is used; null for an unused rolling window.",
    )


class ComingBudgetSerializer(ResponseSchema):
    """What a budget will be from an instant on."""

    starts_at = instant(help_text="From when on it counts and limits.")
    ends_at = instant(allow_null=True, help_text="Until when; null: until it is set again.")
    limit = Whole(help_text="How many credits may be spent in the window.")
    window = serializers.ChoiceField(choices=WINDOWS, help_text="The window of time.")
    hours = Whole(allow_null=True, help_text="The length of a rolling window.")
    time_zone = serializers.CharField(help_text="The zone whose days, weeks and months count.")
    by = serializers.ChoiceField(choices=SCOPES_OF_BUDGETS, help_text="Whose spending is counted together.")
    label = serializers.CharField(  # type: ignore[assignment]
        allow_null=True, help_text="Of a budget by label: the key in the metadata."
    )
    subject = serializers.CharField(allow_null=True, help_text="The only subject that it limits; null: each has the whole limit.")
    mode = serializers.ChoiceField(choices=MODES, help_text="What happens beyond the limit.")
    parent = serializers.CharField(  # type: ignore[assignment]
        allow_null=True, help_text="The budget in which it nests; null for none."
    )


class BudgetBodySerializer(ResponseSchema):
    """A budget of an account, and what is used of it."""

    holder_id = serializers.CharField(help_text="Who owns the account.")
    credit_type = serializers.CharField(help_text="What it counts.")
    budget = computed(serializers.CharField(help_text="Its name."), "settings.name")
    limit = computed(Whole(help_text="How many credits may be spent in the window."), "settings.limit")
    window = computed(serializers.ChoiceField(choices=WINDOWS, help_text="The window of time."), "settings.window")
    hours = computed(Whole(allow_null=True, help_text="The length of a rolling window."), "settings.hours")
    time_zone = computed(serializers.CharField(help_text="The zone whose days, weeks and months count."), "settings.time_zone")
    by = computed(
        serializers.ChoiceField(choices=SCOPES_OF_BUDGETS, help_text="Whose spending is counted together."), "settings.by"
    )
    label = computed(  # type: ignore[assignment]
        serializers.CharField(allow_null=True, help_text="Of a budget by label: the key in the metadata."), "settings.label"
    )
    subject = computed(
        serializers.CharField(allow_null=True, help_text="The only subject that it limits; null: each has the whole limit."),
        "settings.subject",
    )
    mode = computed(serializers.ChoiceField(choices=MODES, help_text="What happens beyond the limit."), "settings.mode")
    parent = computed(
        serializers.CharField(allow_null=True, help_text="The budget in which it nests; null for none."),  # type: ignore[arg-type]
        "settings.parent",
    )
    in_force = computed(
        serializers.BooleanField(help_text="Whether it counts and limits now; if not, it begins at `starts_at`."), "is_in_force"
    )
    starts_at = instant(allow_null=True, help_text="From when on it is in force, if it was set for later; otherwise null.")
    ends_at = instant(allow_null=True, help_text="Until when it is in force; null: no end is set.")
    later = computed(
        ComingBudgetSerializer(many=True, help_text="What the budget will be after it, in order: each from its start on."),
        "settings.later",
    )
    set_by = serializers.CharField(
        help_text="Who set it last: an API key, an operator, or `billing` for the budget of a subscription's plan."
    )
    reference = serializers.CharField(help_text="What the request that set it last named: of a plan's budget the subscription.")
    usage = BudgetUseSerializer(
        many=True, help_text="By subject: the ones that have used most, at most 100, without subjects that have used nothing."
    )
    subjects = Whole(help_text="How many subjects have used something in the window.")
    as_of = instant(help_text="The instant of this usage.")


class UpcomingGrantSerializer(ResponseSchema):
    """A grant that comes."""

    period = Whole(
        allow_null=True,
        help_text="The number of the period, from 0 at the start on; null: of a plan, for a part of a period, or its first ones.",
    )
    amount = Whole(min_value=1, help_text="What it grants; where it fills up to an amount, at most this.")
    starts_at = instant(help_text="When the period begins, and the credits can be spent.")
    ends_at = instant(help_text="When it ends.")
    expires_at = instant(allow_null=True, help_text="When the credits expire; null: not by themselves.")


class RecurringGrantBodySerializer(ResponseSchema):
    """A recurring grant of an account."""

    holder_id = serializers.CharField(help_text="Who owns the account.")
    credit_type = serializers.CharField(help_text="What it grants.")
    recurring_grant = computed(serializers.CharField(help_text="Its name."), "name")
    state = serializers.ChoiceField(choices=("active", "finished"), help_text="Finished: no period is left.")
    amount = computed(Whole(allow_null=True, help_text="How many credits each period."), "terms.amount")
    up_to = computed(Whole(allow_null=True, help_text="Instead of the amount: up to what it fills its lots."), "terms.up_to")
    interval = computed(serializers.ChoiceField(choices=UNITS, help_text="The unit of a period."), "terms.interval")
    interval_count = computed(Whole(min_value=1, help_text="How many units a period has."), "terms.interval_count")
    starts_at = instant(help_text="When period 0 begins.")
    time_zone = computed(serializers.CharField(help_text="The zone whose days, months and clocks count."), "terms.time_zone")
    source = computed(  # type: ignore[assignment]
        serializers.ChoiceField(choices=SOURCES, help_text="Whether the credits are paid for."), "terms.source"
    )
    priority = computed(Whole(help_text="Lots with a lower number are spent first."), "terms.priority")
    expiry = computed(serializers.ChoiceField(choices=EXPIRIES, help_text="When the credits expire."), "terms.expiry")
    expires_after_days = computed(
        Whole(allow_null=True, help_text="With `after_days`: how many days after the start."), "terms.expires_after_days"
    )
    rollover_cap = computed(
        Whole(allow_null=True, help_text="With `rollover`: how many unspent credits the next period keeps."),
        "terms.rollover_cap",
    )
    ends_at = instant(allow_null=True, help_text="No period begins from then on.")
    periods = computed(Whole(allow_null=True, help_text="How many periods there are."), "terms.periods")
    applies_to = computed(
        serializers.DictField(allow_null=True, help_text="What the credits can pay for, as in a grant; null for everything."),
        "terms.applies_to",
    )
    set_by = computed(Whole(min_value=1, help_text="The entry that set these terms."), "grant.setting")
    last_entry = Whole(allow_null=True, min_value=1, help_text="The entry of the last period since then.")
    granted_until = instant(allow_null=True, help_text="The end of the last period that was granted.")
    next_at = instant(allow_null=True, help_text="When the next grant is due; null if it is finished.")
    upcoming = UpcomingGrantSerializer(many=True, help_text="The next grants.")


class IncomingTransfersBodySerializer(ResponseSchema):
    """Whether others may transfer credits into an account."""

    holder_id = serializers.CharField(help_text="Who owns the account.")
    credit_type = serializers.CharField(help_text="What it counts.")
    accepts_transfers = computed(
        serializers.BooleanField(help_text="False if the account refuses transfers from others."), "accepted"
    )
    changed_by = Whole(allow_null=True, min_value=1, help_text="The last entry that set this; null if no entry did.")
    changed_at = instant(allow_null=True, help_text="When that entry was recorded.")


class FreezeBodySerializer(ResponseSchema):
    """Whether a holder is frozen."""

    holder_id = serializers.CharField(help_text="Who owns the credits.")
    frozen = serializers.BooleanField(help_text="True if nothing can be spent, held or transferred, in any credit type.")
    credit_type = serializers.CharField(allow_null=True, help_text="The credit type of the account with the last entry about it.")
    changed_by = Whole(allow_null=True, min_value=1, help_text="The last entry that set this; null if no entry did.")
    changed_at = instant(allow_null=True, help_text="When that entry was recorded.")


class HolderClockBodySerializer(ResponseSchema):
    """The test clock of a holder."""

    holder_id = serializers.CharField(help_text="Who owns the credits.")
    now = instant(
        allow_null=True, help_text="The time of the holder; null if it has no test clock and follows the server's time."
    )
    credit_type = serializers.CharField(allow_null=True, help_text="The credit type of the account with the last entry about it.")
    changed_by = Whole(allow_null=True, min_value=1, help_text="The last entry that moved it; null if no entry did.")
    changed_at = instant(allow_null=True, help_text="When that entry was recorded.")


# Balances --------------------------------------------------------------------------------------------


class AppliesToSerializer(ResponseSchema):
    """What credits can pay for: these rates, and these values of a label."""

    rates = computed(
        serializers.ListField(child=serializers.CharField(), required=False, help_text="The rates."),
        lambda applies_to: applies_to.get("rates"),
    )
    labels = computed(
        serializers.DictField(
            child=serializers.ListField(child=serializers.CharField()), required=False, help_text="The values of a label."
        ),
        lambda applies_to: applies_to.get("labels"),
    )


class OtherCreditsSerializer(ResponseSchema):
    """Credits that can be spent, but not on everything."""

    applies_to = AppliesToSerializer(help_text="What they can pay for.")
    available = _Sum(min_value=1, help_text="How many there are.")


class LotSerializer(ResponseSchema):
    """The rest of a grant."""

    grant = Whole(min_value=1, help_text="The grant, by sequence.")
    remaining = _Sum(min_value=1, help_text="Credits left in it.")
    effective_at = _time_of_us("effective_us", help_text="The instant from which it can be spent.")
    expires_at = _time_of_us("expires_us", allow_null=True, help_text="When it expires; null for never.")
    priority = serializers.IntegerField(help_text="Lots with a lower number are spent first.")
    source = serializers.ChoiceField(  # type: ignore[assignment]
        choices=list(LOT_SOURCES),
        help_text="Purchased: the holder paid for the credits. Promotional: they were given. Postpaid: they were granted on "
        "overage, for the next entry.",
    )
    state = serializers.ChoiceField(
        choices=LOT_STATES,
        help_text="Whether the lot can be spent. The list contains an expired lot until the ledger books its expiry.",
    )
    cost = LotCostSerializer(required=False, help_text="If its credits were sold: what they still cost.")
    applies_to = AppliesToSerializer(required=False, help_text="What its credits can pay for; absent for everything.")


class GrantedSerializer(EntrySerializer):
    """A grant, and what is left of it."""

    lot = LotSerializer(allow_null=True, help_text="What is left of it; null if its credits are all spent, held or gone.")


class ExpirySerializer(ResponseSchema):
    """The soonest expiry among the open lots."""

    at = instant(help_text="When.")
    amount = _Sum(min_value=1, help_text="How many credits expire then if they are not spent before.")


class HoldBodySerializer(ResponseSchema):
    """An open hold."""

    hold = Whole(min_value=1, help_text="The hold, by the sequence of its entry.")
    amount = Whole(min_value=0, help_text="What it still sets aside.")
    expires_at = _time_of_us("expires_us", help_text="When the hold expires.")
    state = serializers.ChoiceField(
        choices=HOLD_STATES, help_text="An expired hold holds nothing; the list contains it until the ledger books its expiry."
    )


class AccountBalanceSerializer(ResponseSchema):
    """An account's state."""

    holder_id = serializers.CharField(help_text="Who owns the credits.")
    credit_type = serializers.CharField(help_text="What is counted.")
    available = _Sum(help_text="What can be spent at `as_of`: on everything, or on the `rate` and `label` of the query.")
    balance = _Sum(
        min_value=-MAX_AMOUNT,
        help_text="The sum of all entries: `available`, `for_other_things`, and lots that are not yet effective, or expired but "
        "not booked.",
    )
    held = _Sum(help_text="Credits set aside: the sum of `holds`.")
    sequence = Whole(help_text="The last entry; 0 for a holder without entries.")
    as_of = instant(help_text="The instant of this state.")
    lots = computed(LotSerializer(many=True, help_text="The lots, in the order in which they are spent."), "shown_lots")
    next_expiry = ExpirySerializer(allow_null=True, help_text="Null if nothing expires.")
    holds = computed(HoldBodySerializer(many=True, help_text="The holds, the oldest first."), "shown_holds")
    overdraft = Whole(help_text="How far below zero spends may take the balance; `available` includes it.")
    owed = Whole(help_text="How much of the overdraft is used: the lots add up to `balance` and this.")
    overage = OverageStateSerializer(
        allow_null=True,
        help_text="What may be used beyond `available` in this period; null without an agreement. Spends use it, and `available` "
        "does not include it.",
    )
    for_other_things = OtherCreditsSerializer(
        many=True,
        required=False,
        help_text="What else can be spent, but only on certain rates or labels, in the order of use; absent without any.",
    )


# Refusals, rates, batches ----------------------------------------------------------------------------


class RefusalSerializer(ResponseSchema):
    """A request that was refused."""

    idempotency_key = serializers.CharField(help_text="The key of the request; the same key gets the same refusal again.")
    operation = serializers.CharField(help_text="The operation of the request.")
    problem = serializers.DictField(help_text="The problem that the request got.")
    recorded_at = instant(help_text="When.")
    actor = serializers.CharField(help_text="Who sent the request.")


class ComponentPriceSerializer(ResponseSchema):
    """The price of a component of a rate."""

    price = computed(
        Whole(min_value=0, help_text="The price of `per` units, in credits; 0 if they are free."), itemgetter("price")
    )
    per = computed(Whole(min_value=1, help_text="Units per price."), itemgetter("per"))


class RateBodySerializer(ResponseSchema):
    """A version of a rate."""

    ref = computed(serializers.CharField(help_text="Its name."), "code")
    credit_type = serializers.CharField(help_text="What is counted.")
    version = serializers.IntegerField(min_value=1, help_text="1, 2, 3 …; the highest version applies.")
    price = Whole(min_value=0, required=False, help_text="The price of `per` units, in credits; 0 if they are free.")
    per = Whole(min_value=1, required=False, help_text="Units per price; the ledger rounds up to whole credits.")
    components = computed(
        serializers.DictField(
            child=ComponentPriceSerializer(),
            required=False,
            help_text="Instead of one price: the price of each component. The sum of their exact costs is rounded up once.",
        ),
        "components",
    )
    published_at = instant(help_text="The instant from which this version applies.")
    published_by = serializers.CharField(help_text="Who published it.")
    reason = computed(serializers.CharField(help_text="Why."), "published_because")


class QuoteBodySerializer(ResponseSchema):
    """The current price of quantities."""

    amount = Whole(min_value=0, help_text="In credits.")
    rating = computed(EntryRatingSerializer(help_text="The rating that an entry would keep."), lambda rating: rating)


class ResultSerializer(serializers.Serializer):
    """The outcome of one operation of a batch."""

    status = serializers.IntegerField(
        help_text="The status that the call alone would have: 201, 402 …; 424 if another operation failed."
    )
    replayed = serializers.BooleanField(required=False, help_text="True when the operation's key had been used before.")
    body = EntrySerializer(required=False, help_text="The entry.")
    problem = serializers.DictField(required=False, help_text="Or the problem.")


class BatchBodySerializer(serializers.Serializer):
    """The outcome of a batch."""

    failed = serializers.IntegerField(help_text="How many operations have a problem.")
    results = ResultSerializer(many=True, help_text="One per operation, in their order.")


# Explanations ----------------------------------------------------------------------------------------


class StateLotSerializer(serializers.Serializer):
    """A lot of an account's state."""

    grant = Whole(min_value=1, help_text="The grant, by sequence.")
    remaining = _Sum(min_value=1, help_text="Credits left in it.")
    effective_at = serializers.DateTimeField(help_text="The instant from which it can be spent.")
    expires_at = serializers.DateTimeField(allow_null=True, help_text="When it expires; null for never.")
    priority = serializers.IntegerField(help_text="Lots with a lower number are spent first.")
    source = serializers.CharField(help_text="purchased, promotional or postpaid.")  # type: ignore[assignment]
    state = serializers.CharField(help_text="spendable, not_yet_effective, or expired but not booked.")
    applies_to = AppliesToSerializer(required=False, help_text="What its credits can pay for; absent for everything.")


class StateSerializer(serializers.Serializer):
    """An account's state at the instant of an entry."""

    sequence = Whole(help_text="The last entry.")
    available = _Sum(help_text="The credits that could be spent.")
    balance = _Sum(min_value=-MAX_AMOUNT, help_text="The balance.")
    held = _Sum(help_text="Credits set aside.")
    overdraft = Whole(help_text="How far below zero spends may take the balance.")
    owed = Whole(help_text="How much of the overdraft is used: the lots add up to the balance and this.")
    lots = StateLotSerializer(many=True, help_text="The open lots, in the order of use.")
    holds = HoldBodySerializer(many=True, help_text="The open holds.")


class LotDecisionSerializer(serializers.Serializer):
    """The ledger's decision about a lot, and its reason."""

    grant = Whole(help_text="The lot.")
    amount = Whole(help_text="How many of its credits were used; 0 if the lot was skipped.")
    decision = serializers.ChoiceField(
        choices=[(name, name) for name in DECISIONS], help_text="What the ledger did with the lot, or why it skipped it."
    )
    text = serializers.CharField(help_text="For people.")


class CostExplanationSerializer(serializers.Serializer):
    """What an entry changed of the cost of a lot."""

    grant = Whole(help_text="The lot.")
    change_minor = Whole(min_value=-MAX_AMOUNT, help_text="The change, in minor units.")
    left_minor = Whole(help_text="What is left of the cost.")
    currency = serializers.CharField(help_text="The currency, by ISO 4217.")
    text = serializers.CharField(help_text="For people.")


class BookedSerializer(serializers.Serializer):
    """A due change that the same write booked."""

    sequence = Whole(min_value=1, help_text="The entry.")
    kind = serializers.CharField(help_text="A kind that the ledger books by itself: expire, release or adjust.")
    amount = Whole(min_value=-MAX_AMOUNT, help_text="The change of the balance.")
    refers_to = Whole(allow_null=True, help_text="The hold or grant, by sequence.")
    effective_at = serializers.DateTimeField(help_text="The instant from which it counted.")
    text = serializers.CharField(help_text="For people.")


class ReferredSerializer(serializers.Serializer):
    """The spend, hold or grant that an entry refers to, and its rest."""

    sequence = Whole(min_value=1, help_text="The entry.")
    kind = serializers.CharField(help_text="The kind of the entry.")
    amount = Whole(min_value=-MAX_AMOUNT, help_text="The change of the balance.")
    text = serializers.CharField(help_text="For people.")
    taken = Whole(required=False, help_text="Of a spend: the credits that it took.")
    returned_before = Whole(required=False, help_text="Of a spend: the credits refunded before.")
    returned = Whole(required=False, help_text="Of a spend: the credits refunded in all.")
    refundable = Whole(required=False, help_text="Of a spend: the credits that can still be refunded.")
    held_before = Whole(required=False, help_text="Of a hold: the credits set aside before.")
    held = Whole(required=False, help_text="Of a hold: the credits still set aside.")
    expires_at = serializers.DateTimeField(required=False, allow_null=True, help_text="Of a hold that is still open.")
    remaining = _Sum(required=False, help_text="Of a grant: the rest of its lot.")


class CountedSerializer(serializers.Serializer):
    """What a budget counted of an entry."""

    budget = serializers.CharField(help_text="The budget.")
    subject = serializers.CharField(allow_null=True, help_text="The subject that was counted; null for the whole account.")
    within = serializers.ListField(child=serializers.CharField(), help_text="The subjects of the budget's parents.")
    mode = serializers.CharField(help_text="hard or soft.")
    limit = Whole(help_text="Its limit.")
    used_before = _Sum(help_text="What was used in the window before the entry.")
    used = _Sum(help_text="What was used after it.")
    text = serializers.CharField(help_text="For people.")


class ExplanationSerializer(serializers.Serializer):
    """The explanation of an entry."""

    sequence = Whole(min_value=1, help_text="The entry.")
    kind = serializers.CharField(help_text="Its kind.")
    text = serializers.CharField(help_text="What happened, for people.")
    before = StateSerializer(help_text="The account when it was decided.")
    after = StateSerializer(help_text="The account after it.")
    lots = LotDecisionSerializer(many=True, help_text="Each lot that was used or skipped, in order.")
    costs = CostExplanationSerializer(many=True, help_text="What it changed of the costs of lots that were sold.")
    budgets = CountedSerializer(many=True, help_text="The budgets that counted it, or gave something back.")
    booked_before = BookedSerializer(many=True, help_text="Due changes that the same write booked just before.")
    booked_after = BookedSerializer(many=True, help_text="Changes that followed from the entry and were booked just after it.")
    refers_to = ReferredSerializer(allow_null=True, help_text="The entry that this one refers to, or null.")
