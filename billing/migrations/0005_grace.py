"""Drafts with a grace period: for how long they are rated anew before they are finalised."""

from typing import ClassVar

from django.db import migrations, models
from django.db.migrations.operations.base import Operation


class Migration(migrations.Migration):
    dependencies: ClassVar[list[tuple[str, str]]] = [("billing", "0004_document_moves")]

    operations: ClassVar[list[Operation]] = [
        migrations.AddField(
            model_name="customer",
            name="grace_days",
            field=models.PositiveIntegerField(db_comment="days for which an invoice stays a draft that is rated anew", default=0),
        ),
        migrations.AddField(
            model_name="invoice",
            name="grace_ends_at",
            field=models.DateTimeField(db_comment="until when the draft is rated anew; null: it has no grace", null=True),
        ),
        migrations.AddIndex(
            model_name="invoice",
            index=models.Index(
                fields=["subscription", "grace_ends_at"],
                name="billing_invoice_in_grace",
                condition=models.Q(state="draft", grace_ends_at__isnull=False),
            ),
        ),
    ]
