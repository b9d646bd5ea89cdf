"""What operators see of rates and batches, and what more they may be permitted: to release, to transfer, to agree overdrafts, to publish."""

from typing import ClassVar

from django.db import migrations, models
from django.db.migrations.operations.base import Operation

from ledger.migrations.sql import read

LISTING = [
    ("credit_type", models.TextField()),
    ("code", models.TextField()),
    ("version", models.IntegerField()),
    ("price", models.BigIntegerField(db_comment="For so many credits …")),
    ("per", models.BigIntegerField(db_comment="… one gets so many units; started credits are counted whole.")),
    ("published_at", models.DateTimeField()),
    ("published_by", models.TextField(blank=True)),
    ("published_because", models.TextField(blank=True, db_comment="The reason that was given.", db_default="")),
    ("idempotency_key", models.TextField(db_comment="The request that published it; null where nobody gave a key.", null=True)),
    ("request_digest", models.BinaryField(null=True)),
    ("id", models.TextField(primary_key=True, serialize=False)),
]


class Migration(migrations.Migration):
    dependencies: ClassVar[list[tuple[str, str]]] = [("ledger", "0003_reference_index")]

    operations: ClassVar[list[Operation]] = [
        migrations.AddField(
            model_name="rate",
            name="published_because",
            field=models.TextField(blank=True, db_comment="The reason that was given.", db_default=""),
        ),
        migrations.RunSQL(
            read("0004_operators_pages.sql"),
            "DROP VIEW ledger_rate_listing;",
            state_operations=[
                migrations.CreateModel(
                    name="RateListing",
                    fields=LISTING,
                    options={
                        "verbose_name": "rate",
                        "db_table": "ledger_rate_listing",
                        "default_permissions": ("view",),
                        "permissions": [("publish_rate", "Can publish a rate")],
                        "managed": False,
                    },
                ),
            ],
        ),
        migrations.AddIndex(
            model_name="batch",
            index=models.Index(fields=["recorded_at", "idempotency_key"], name="ledger_batch_recorded_at"),
        ),
        migrations.AlterModelOptions(name="rate", options={"default_permissions": ()}),
        migrations.AlterModelOptions(name="batch", options={"default_permissions": ("view",), "verbose_name_plural": "batches"}),
        migrations.AlterModelOptions(
            name="account",
            options={
                "default_permissions": ("view",),
                "managed": False,
                "permissions": [
                    ("view_locks", "Can view current locks"),
                    ("set_overdraft", "Can set an overdraft"),
                    ("transfer_credits", "Can transfer credits"),
                ],
                "verbose_name": "account",
                "verbose_name_plural": "holders with balances",
            },
        ),
        migrations.AlterModelOptions(
            name="entrylisting",
            options={
                "default_permissions": ("view",),
                "managed": False,
                "permissions": [
                    ("grant_credits", "Can grant credits"),
                    ("refund_spend", "Can refund a spend"),
                    ("revoke_grant", "Can revoke the rest of a grant"),
                    ("release_hold", "Can release a hold"),
                ],
                "verbose_name": "entry",
                "verbose_name_plural": "entries",
            },
        ),
    ]
