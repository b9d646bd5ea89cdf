"""What the operators' pages read by, and what operators may be permitted to do with a document."""

from typing import ClassVar

from django.db import migrations, models
from django.db.migrations.operations.base import Operation


class Migration(migrations.Migration):
    dependencies: ClassVar[list[tuple[str, str]]] = [("billing", "0002_rules")]

    operations: ClassVar[list[Operation]] = [
        migrations.AlterModelOptions(
            name="invoice",
            options={
                "permissions": [
                    ("finalize_invoice", "Can finalise a draft"),
                    ("pay_invoice", "Can mark an invoice as paid"),
                    ("void_invoice", "Can void an invoice"),
                    ("give_up_invoice", "Can mark an invoice as uncollectible"),
                ]
            },
        ),
        migrations.AddIndex(model_name="run", index=models.Index(fields=["started_at"], name="billing_run_started")),
        migrations.AddIndex(model_name="couponuse", index=models.Index(fields=["invoice_id"], name="billing_couponuse_invoice")),
        migrations.RemoveIndex(model_name="outcome", name="billing_outcome_run"),
        migrations.AddIndex(
            model_name="outcome", index=models.Index(fields=["run_id", "outcome", "id"], name="billing_outcome_run")
        ),
    ]
