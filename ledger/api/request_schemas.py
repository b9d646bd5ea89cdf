"""What the ledger's calls take: bodies of writes and queries of reads."""

from ledger.api.kit.reading.fields import (
    HOLDER_PATTERN,
    AmountField,
    ChoiceField,
    CreditTypeField,
    HolderField,
    IdempotencyKeyField,
    MetadataField,
    NameField,
    RateField,
    SequenceField,
    TextField,
    TimeField,
    TruthField,
    WholeNumberField,
)
from ledger.api.kit.reading.queries import ListQuery
from ledger.api.kit.reading.strict_serializers import AnyOfField, StrictSerializer
from ledger.rules import KINDS
from ledger.rules.requests import MAX_AMOUNT, MAX_PRIORITY, MAX_REASON_CHARACTERS, MAX_REFERENCE_CHARACTERS, OVER_CAPTURES

MAX_OPERATIONS = 1_000
MODES = ("atomic", "each")


class _Write(StrictSerializer):
    """What every write of the ledger may say."""

    credit_type = CreditTypeField(default="credits", help_text="What is counted.")
    reason = TextField(max_length=MAX_REASON_CHARACTERS, default="", help_text="Why, for people.")
    reference = TextField(
        max_length=MAX_REFERENCE_CHARACTERS, default="", help_text="What it belongs to in your books: an order, a message."
    )
    metadata = MetadataField(required=False, help_text="Yours: at most 50 keys of at most 64 characters, 8 KiB in all.")


class _Priced(_Write):
    """An amount, or what comes to one."""

    either = (("amount",), ("rate", "quantity"))

    amount = AmountField(required=False, help_text="How many, in the smallest unit.")
    rate = RateField(required=False, help_text="Instead of the amount: the rate that it is priced by …")
    quantity = AmountField(required=False, help_text="… and how much of what it prices was used.")


class GrantSerializer(_Write):
    """Credits to put in."""

    amount = AmountField(help_text="How many, in the smallest unit.")
    source = ChoiceField(  # type: ignore[assignment]
        choices=("purchased", "promotional"), default="purchased", help_text="Paid for, or given. Given ones are spent first."
    )
    effective_at = TimeField(required=False, allow_null=True, help_text="When they can be spent from; now by default.")
    expires_at = TimeField(required=False, allow_null=True, help_text="When they expire; never by default.")
    priority = WholeNumberField(min_value=0, max_value=MAX_PRIORITY, default=100, help_text="Lower ones are spent first.")


class SpendSerializer(_Priced):
    """Credits to take out: an amount, or a quantity of something that has a rate."""


class RefundSerializer(_Write):
    """A spend to give back, whole or in part."""

    spend = SequenceField(help_text="The spend, by its sequence.")
    amount = AmountField(required=False, help_text="How many; all that is left of the spend by default.")


class RevocationSerializer(_Write):
    """A grant whose unspent rest is to be taken back, whole or in part."""

    grant = SequenceField(help_text="The grant, by its sequence.")
    amount = AmountField(required=False, help_text="How many; all that is unspent by default.")


class HoldSerializer(_Priced):
    """Credits to set aside: an amount, or a quantity of something that has a rate."""

    expires_at = TimeField(
        required=False, allow_null=True, help_text="When they are no longer held: within 31 days; in an hour by default."
    )


class CaptureSerializer(_Write):
    """How much of a hold is spent."""

    amount = AmountField(required=False, help_text="How many; all that is held by default.")
    final = TruthField(default=True, help_text="Release the rest; else it stays held, for more captures.")
    over_capture = ChoiceField(
        choices=OVER_CAPTURES,
        default="refuse",
        help_text="For an amount above what is held: refuse it, or take the difference from the balance if it is available.",
    )


class ReleaseSerializer(_Write):
    """A hold to give back."""


class ExtensionSerializer(_Write):
    """When a hold is to expire instead."""

    expires_at = TimeField(help_text="Within 31 days from now; sooner than before is possible too.")


class TransferSerializer(_Write):
    """Credits to move to another holder."""

    to = HolderField(help_text="The holder who gets them.")
    amount = AmountField(help_text="How many, in the smallest unit.")


class IncomingTransfersSerializer(_Write):
    """Whether others may transfer credits into the account."""

    accepted = TruthField(help_text="False refuses them from now on; accounts accept them until they are told otherwise.")


class OverdraftSerializer(_Write):
    """How far below zero spends may take the balance."""

    limit = WholeNumberField(min_value=0, max_value=MAX_AMOUNT, help_text="0 for no overdraft. What is owed stays owed.")


# Rates -----------------------------------------------------------------------------------------------


class RateSerializer(StrictSerializer):
    """The next version of a rate."""

    code = RateField(help_text="Its name.")
    price = AmountField(help_text="This many credits …")
    per = AmountField(help_text="Units per price; the ledger rounds up to whole credits.")
    credit_type = CreditTypeField(default="credits", help_text="What is counted.")
    reason = TextField(max_length=MAX_REASON_CHARACTERS, default="", help_text="Why, for people.")


class QuoteSerializer(StrictSerializer):
    """A quantity to be priced."""

    rate = RateField(help_text="The rate, by its name.")
    quantity = AmountField(help_text="How much of what it prices.")
    credit_type = CreditTypeField(default="credits", help_text="What is counted.")


# Batches ---------------------------------------------------------------------------------------------


class _Operation(StrictSerializer):
    """What every operation of a batch says, beside the fields of the single call."""

    holder = HolderField(help_text="Whose credits.")
    idempotency_key = IdempotencyKeyField(required=False, help_text="By default the key of the batch, / and the index.")


class GrantOperationSerializer(_Operation, GrantSerializer):
    """A grant in a batch."""

    operation = NameField(help_text="What is asked.", name="grant")


class SpendOperationSerializer(_Operation, SpendSerializer):
    """A spend in a batch."""

    operation = NameField(help_text="What is asked.", name="spend")


class RefundOperationSerializer(_Operation, RefundSerializer):
    """A refund in a batch."""

    operation = NameField(help_text="What is asked.", name="refund")


class RevocationOperationSerializer(_Operation, RevocationSerializer):
    """A revocation in a batch."""

    operation = NameField(help_text="What is asked.", name="revoke")


class HoldOperationSerializer(_Operation, HoldSerializer):
    """A hold in a batch."""

    operation = NameField(help_text="What is asked.", name="hold")


class CaptureOperationSerializer(_Operation, CaptureSerializer):
    """A capture in a batch."""

    operation = NameField(help_text="What is asked.", name="capture")
    hold = SequenceField(help_text="The hold, by its sequence.")


class ReleaseOperationSerializer(_Operation, ReleaseSerializer):
    """A release in a batch."""

    operation = NameField(help_text="What is asked.", name="release")
    hold = SequenceField(help_text="The hold, by its sequence.")


class ExtensionOperationSerializer(_Operation, ExtensionSerializer):
    """An extension of a hold in a batch."""

    operation = NameField(help_text="What is asked.", name="extend")
    hold = SequenceField(help_text="The hold, by its sequence.")


class TransferOperationSerializer(_Operation, TransferSerializer):
    """A transfer in a batch."""

    operation = NameField(help_text="What is asked.", name="transfer")


OPERATIONS: dict[str, type[StrictSerializer]] = {
    "grant": GrantOperationSerializer,
    "spend": SpendOperationSerializer,
    "refund": RefundOperationSerializer,
    "revoke": RevocationOperationSerializer,
    "hold": HoldOperationSerializer,
    "capture": CaptureOperationSerializer,
    "release": ReleaseOperationSerializer,
    "extend": ExtensionOperationSerializer,
    "transfer": TransferOperationSerializer,
}


class BatchSerializer(StrictSerializer):
    """Operations to be done in their order, in one transaction."""

    mode = ChoiceField(choices=MODES, help_text="`atomic`: all or nothing. `each`: each operation independently.")
    operations = AnyOfField(
        by="operation",
        shapes=OPERATIONS,
        item_name="BatchOperation",
        min_items=1,
        max_items=MAX_OPERATIONS,
        help_text="What is asked.",
    )


# Reads -----------------------------------------------------------------------------------------------


class BalanceQuery(StrictSerializer):
    """Which account, and as of when."""

    credit_type = CreditTypeField(default="credits", help_text="What is counted.")
    at = TimeField(required=False, help_text="As of this instant; now by default.")
    by = ChoiceField(
        choices=("recorded", "effective"),
        default="recorded",
        help_text="What was on record by then, or what counts from then on by all that is on record now.",
    )


class EntryQuery(StrictSerializer):
    """Which account."""

    credit_type = CreditTypeField(default="credits", help_text="What is counted.")


class EntriesQuery(ListQuery):
    """Which entries."""

    credit_type = CreditTypeField(required=False, help_text="Only this credit type; all by default.")
    kind = ChoiceField(choices=KINDS, required=False, help_text="Only this kind; all but refusals by default.")
    since = TimeField(required=False, help_text="Recorded at or after this instant.")
    until = TimeField(required=False, help_text="Recorded before this instant.")


class HoldsQuery(ListQuery):
    """Which account."""

    credit_type = CreditTypeField(default="credits", help_text="What is counted.")


class RefusalsQuery(ListQuery):
    """Which page."""


class HoldersQuery(ListQuery):
    """Which holders."""

    prefix = TextField(max_length=64, pattern=f"(?:{HOLDER_PATTERN})?", default="", help_text="Only holders whose id begins so.")
    credit_type = CreditTypeField(required=False, help_text="Only this credit type; all by default.")


class RatesQuery(ListQuery):
    """Which rates."""

    credit_type = CreditTypeField(required=False, help_text="Only this credit type; all by default.")


class RateVersionsQuery(ListQuery):
    """Which rate."""

    credit_type = CreditTypeField(default="credits", help_text="What is counted.")
