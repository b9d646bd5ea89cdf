"""What is billed, and where the generator looks next."""

from django.db import models
from django.db.models.functions import Now

from billing.models.columns import MONEY, reference


class Claim(models.Model):
    """[starts_at, ends_at) of an item is billed, with price and amount. A void or a correction releases the claim.

    Invariant: claims of an item and kind that are not released do not overlap, whatever the locks did (exclusion constraint). A
        correction releases the claim and inserts the rest of it, so the claims that are not released are always everything that
        is billed.
    """

    class Kind(models.IntegerChoices):
        RECURRING = 1
        USAGE = 2
        CHARGE = 3
        BOUND = 4
        ALLOWANCE = 5

    class MeasureAgain(models.TextChoices):
        """The claim counts again since a later invoice was voided; or a run found late usage beyond its look-back."""

        RESTORED = "restored"
        LEFT_OUT = "left-out"

    subscription = reference("Subscription")
    item_id = models.BigIntegerField(db_comment="billing_item.id; for a one-off charge billing_charge.id")
    kind = models.SmallIntegerField(choices=Kind.choices)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    price = reference("Price", null=True)
    quantity = models.DecimalField(**MONEY, db_comment="billed, after aggregation")
    amount_minor = models.BigIntegerField(db_comment="billed for this period so far, net of line discounts")
    invoice_id = models.BigIntegerField(null=True, db_comment="null: nothing was used and nothing is owed, so there is no line")
    line_position = models.PositiveIntegerField(null=True, db_comment="the line that it comes from")
    snapshot = models.JSONField(
        default=dict, db_comment="what a correction needs to know: shares of the period, or the usage rated"
    )
    created_at = models.DateTimeField(db_default=Now(), db_comment="when it was written; of a restored claim, when it was first")
    measure_again = models.CharField(
        max_length=8,
        choices=MeasureAgain,
        blank=True,
        default="",
        db_default="",
        db_comment="why the next run compares its usage with the events",
    )
    released_at = models.DateTimeField(null=True)
    made_by = models.BigIntegerField(null=True, db_comment="the invoice that wrote the row; not that of the line on what is left")
    released_by = models.BigIntegerField(null=True, db_comment="the invoice that corrected or voided it")
    restores = models.BigIntegerField(null=True, db_comment="the released claim that counts again with this one")

    class Meta:
        indexes = [
            models.Index(fields=["subscription", "ends_at"], name="billing_claim_held", condition=models.Q(released_at=None)),
            models.Index(
                fields=["subscription"],
                name="billing_claim_measure_again",
                condition=models.Q(released_at=None) & ~models.Q(measure_again=""),
            ),
            models.Index(fields=["invoice_id"], name="billing_claim_invoice"),
            models.Index(fields=["made_by"], name="billing_claim_made_by"),
            models.Index(fields=["released_by"], name="billing_claim_released_by", condition=models.Q(released_by__isnull=False)),
        ]


class Cursor(models.Model):
    """The instant at which the next run has to look. A hint: the claims say what is billed. It can be deleted at any time.

    To void an invoice sets it back to the time that is unbilled then.
    """

    subscription = models.OneToOneField(
        "Subscription", on_delete=models.DO_NOTHING, db_constraint=False, related_name="+", primary_key=True
    )
    recurring_due_at = models.DateTimeField(null=True, db_comment="null: nothing will be due until an amendment")
    usage_due_at = models.DateTimeField(null=True, db_comment="null: nothing will be due until an amendment or late usage")
    recurring_amendments_seen = models.PositiveIntegerField(default=0)
    usage_amendments_seen = models.PositiveIntegerField(default=0)
    charges_seen = models.PositiveIntegerField(default=0)
    claims_from = models.DateTimeField(null=True, db_comment="claims that end before are settled; null: look at all")
    usage_seen_until = models.DateTimeField(
        null=True, db_comment="usage recorded before was compared with the claims; null: look at all"
    )
    looked_at = models.DateTimeField()
