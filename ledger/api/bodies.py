"""What the ledger's calls take: bodies of writes and queries of reads."""

from ledger.api.inputs import (
    HOLDER_PATTERN,
    AmountField,
    ChoiceField,
    CreditTypeField,
    ListQuery,
    MetadataField,
    SequenceField,
    StrictSerializer,
    TextField,
    TimeField,
    WholeNumberField,
)
from ledger.rules import KINDS

MAX_PRIORITY = 2**15 - 1


class _Write(StrictSerializer):
    """What every write of the ledger may say."""

    credit_type = CreditTypeField(default="credits", help_text="What is counted.")
    reason = TextField(max_length=500, default="", help_text="Why, for people.")
    reference = TextField(max_length=200, default="", help_text="What it belongs to in your books: an order, a message.")
    metadata = MetadataField(required=False, help_text="Yours: at most 50 keys of at most 64 characters, 8 KiB in all.")


class GrantSerializer(_Write):
    """Credits to put in."""

    amount = AmountField(help_text="How many, in the smallest unit.")
    source = ChoiceField(  # type: ignore[assignment]
        choices=("purchased", "promotional"), default="purchased", help_text="Paid for, or given. Given ones are spent first."
    )
    effective_at = TimeField(required=False, allow_null=True, help_text="When they can be spent from; now by default.")
    expires_at = TimeField(required=False, allow_null=True, help_text="When they expire; never by default.")
    priority = WholeNumberField(min_value=0, max_value=MAX_PRIORITY, default=100, help_text="Lower ones are spent first.")


class SpendSerializer(_Write):
    """Credits to take out."""

    amount = AmountField(help_text="How many, in the smallest unit.")


class RefundSerializer(_Write):
    """A spend to give back, whole or in part."""

    spend = SequenceField(help_text="The spend, by its sequence.")
    amount = AmountField(required=False, help_text="How many; all that is left of the spend by default.")


class RevocationSerializer(_Write):
    """A grant whose unspent rest is to be taken back, whole or in part."""

    grant = SequenceField(help_text="The grant, by its sequence.")
    amount = AmountField(required=False, help_text="How many; all that is unspent by default.")


class BalanceQuery(StrictSerializer):
    """Which account, and as of when."""

    credit_type = CreditTypeField(default="credits", help_text="What is counted.")
    at = TimeField(required=False, help_text="As of this instant; now by default.")


class EntryQuery(StrictSerializer):
    """Which account."""

    credit_type = CreditTypeField(default="credits", help_text="What is counted.")


class EntriesQuery(ListQuery):
    """Which entries."""

    credit_type = CreditTypeField(required=False, help_text="Only this credit type; all by default.")
    kind = ChoiceField(choices=KINDS, required=False, help_text="Only this kind.")
    since = TimeField(required=False, help_text="Recorded at or after this instant.")
    until = TimeField(required=False, help_text="Recorded before this instant.")


class RefusalsQuery(ListQuery):
    """Which page."""


class HoldersQuery(ListQuery):
    """Which holders."""

    prefix = TextField(max_length=64, pattern=f"(?:{HOLDER_PATTERN})?", default="", help_text="Only holders whose id begins so.")
    credit_type = CreditTypeField(required=False, help_text="Only this credit type; all by default.")
