"""Who deleted a draft, why, and what it was."""

from typing import ClassVar

from django.db import migrations, models
from django.db.migrations.operations.base import Operation


class Migration(migrations.Migration):
    dependencies: ClassVar[list[tuple[str, str]]] = [("billing", "0005_grace")]

    operations: ClassVar[list[Operation]] = [
        migrations.AlterModelOptions(
            name="invoice",
            options={
                "permissions": [
                    ("finalize_invoice", "Can finalise a draft"),
                    ("pay_invoice", "Can mark an invoice as paid"),
                    ("void_invoice", "Can void an invoice"),
                    ("give_up_invoice", "Can mark an invoice as uncollectible"),
                    ("delete_draft", "Can delete a draft"),
                ]
            },
        ),
        migrations.AlterField(
            model_name="documentmove",
            name="move",
            field=models.CharField(db_comment="finalize, pay, void, give_up or delete", max_length=16),
        ),
        migrations.AddField(
            model_name="documentmove",
            name="subscription_id",
            field=models.BigIntegerField(db_comment="whose draft was deleted; null for every other move", null=True),
        ),
        migrations.AddField(
            model_name="documentmove",
            name="draft",
            field=models.JSONField(db_comment="what the draft was that was deleted", null=True),
        ),
        migrations.AddIndex(
            model_name="documentmove",
            index=models.Index(
                fields=["subscription_id", "id"],
                name="billing_documentmove_deleted",
                condition=models.Q(subscription_id__isnull=False),
            ),
        ),
    ]
