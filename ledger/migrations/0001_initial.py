"""The ledger's schema: schema.sql makes it, the operations below tell Django's models of it."""

from pathlib import Path
from typing import Any, ClassVar

from django.db import migrations, models
from django.db.migrations.operations.base import Operation

from ledger.database.schema_changes import CreateModels, LedgerMigration
from ledger.models import ExactJSON
from ledger.operators.permissions import added_to

SCHEMA = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")

Fields = list[tuple[str, "models.Field[Any, Any]"]]


def entry_columns() -> Fields:
    return [
        ("holder_id", models.TextField(verbose_name="holder")),
        ("credit_type", models.TextField()),
        ("sequence", models.BigIntegerField()),
        ("amount", models.BigIntegerField()),
        ("balance", models.BigIntegerField()),
        ("held", models.BigIntegerField()),
        ("refers_to", models.BigIntegerField(null=True)),
        ("refunded_total", models.BigIntegerField(null=True)),
        ("overdraft", models.BigIntegerField(null=True)),
        ("requested", models.BigIntegerField(null=True)),
        ("recorded_at", models.DateTimeField()),
        ("kind", models.TextField()),
        ("lots", ExactJSON()),
        ("drawn", ExactJSON()),
        ("holds", ExactJSON(null=True)),
        ("budgets", ExactJSON(null=True)),
        ("counterpart", ExactJSON(null=True)),
        ("rating", ExactJSON(null=True)),
        ("refusal", ExactJSON(null=True)),
        ("idempotency_key", models.TextField(null=True)),
        ("request_digest", models.BinaryField(null=True)),
        ("actor", models.TextField()),
        ("reason", models.TextField()),
        ("reference", models.TextField()),
        ("metadata", ExactJSON(null=True)),
        ("sale", ExactJSON(null=True)),
        ("costs", ExactJSON(null=True)),
        ("cost_changes", ExactJSON(null=True)),
        ("overage", ExactJSON(null=True)),
        ("postpaid", models.BigIntegerField(null=True)),
        ("claims", ExactJSON(null=True)),
        ("counts", ExactJSON(null=True)),
        ("next_grant_at", models.DateTimeField(null=True)),
        ("digest", models.BinaryField()),
    ]


def batch_columns() -> Fields:
    return [
        ("idempotency_key", models.TextField()),
        ("confined_to", models.TextField()),
        ("request_digest", models.BinaryField()),
        ("mode", models.TextField()),
        ("outcomes", ExactJSON()),
        ("recorded_at", models.DateTimeField()),
        ("actor", models.TextField()),
        ("request_id", models.TextField()),
    ]


def rate_columns() -> Fields:
    return [
        ("credit_type", models.TextField()),
        ("code", models.TextField()),
        ("version", models.IntegerField()),
        ("price", models.BigIntegerField(null=True)),
        ("per", models.BigIntegerField(null=True)),
        ("components", ExactJSON(null=True)),
        ("published_at", models.DateTimeField()),
        ("published_by", models.TextField(blank=True)),
        ("published_because", models.TextField(blank=True)),
        ("idempotency_key", models.TextField(null=True)),
        ("request_digest", models.BinaryField(null=True)),
    ]


def composite_key(*columns: str) -> Fields:
    key = models.CompositePrimaryKey(*columns, blank=True, editable=False, primary_key=True, serialize=False)
    return [("pk", key)]


def text_key() -> Fields:
    return [("id", models.TextField(primary_key=True, serialize=False))]


MODELS = [
    migrations.CreateModel(
        name="Entry",
        fields=[
            *entry_columns(),
            ("effective_at", models.DateTimeField(null=True)),
            *composite_key("holder_id", "credit_type", "sequence"),
        ],
        options={"db_table": "ledger_entry", "default_permissions": (), "verbose_name_plural": "entries"},
    ),
    migrations.CreateModel(
        name="EntryListing",
        fields=[*entry_columns(), ("effective_at", models.DateTimeField()), *text_key()],
        options={
            "db_table": "ledger_entry_listing",
            "default_permissions": ("view",),
            "managed": False,
            "permissions": added_to("entrylisting"),
            "verbose_name": "entry",
            "verbose_name_plural": "entries",
        },
    ),
    migrations.CreateModel(
        name="Account",
        fields=[*entry_columns(), ("effective_at", models.DateTimeField()), *text_key()],
        options={
            "db_table": "ledger_account",
            "default_permissions": ("view",),
            "managed": False,
            "permissions": added_to("account"),
            "verbose_name": "account",
            "verbose_name_plural": "holders with balances",
        },
    ),
    migrations.CreateModel(
        name="RefusalListing",
        fields=[
            *text_key(),
            ("holder_id", models.TextField(verbose_name="holder")),
            ("credit_type", models.TextField()),
            ("sequence", models.BigIntegerField()),
            ("recorded_at", models.DateTimeField()),
            ("idempotency_key", models.TextField()),
            ("operation", models.TextField()),
            ("code", models.TextField()),
            ("facts", ExactJSON()),
            ("request", ExactJSON()),
            ("request_id", models.TextField()),
            ("actor", models.TextField()),
            ("balance", models.BigIntegerField()),
            ("held", models.BigIntegerField()),
            ("lots", ExactJSON()),
        ],
        options={
            "db_table": "ledger_refusal_listing",
            "default_permissions": ("view",),
            "managed": False,
            "verbose_name": "refusal",
            "verbose_name_plural": "refusals",
        },
    ),
    migrations.CreateModel(
        name="CreditType",
        fields=[
            (
                "code",
                models.TextField(
                    help_text="The type as requests name it, such as usd_cents.",
                    primary_key=True,
                    serialize=False,
                    verbose_name="credit type",
                ),
            ),
            ("name", models.CharField(help_text="The full name, such as US dollars.", max_length=60)),
            ("unit", models.CharField(help_text="The unit shown after an amount, such as USD.", max_length=16)),
            (
                "scale",
                models.SmallIntegerField(
                    db_default=0,
                    default=0,
                    help_text="How many decimals an amount has: with 2, 12345 is shown as 123.45.",
                    verbose_name="decimals",
                ),
            ),
        ],
        options={"db_table": "ledger_credit_type", "verbose_name": "credit type"},
    ),
    migrations.CreateModel(
        name="Rate",
        fields=[*rate_columns(), *composite_key("credit_type", "code", "version")],
        options={"db_table": "ledger_rate", "default_permissions": ()},
    ),
    migrations.CreateModel(
        name="RateListing",
        fields=[*rate_columns(), *text_key()],
        options={
            "db_table": "ledger_rate_listing",
            "default_permissions": ("view",),
            "managed": False,
            "permissions": added_to("ratelisting"),
            "verbose_name": "rate",
        },
    ),
    migrations.CreateModel(
        name="Batch",
        fields=[*batch_columns(), *composite_key("idempotency_key", "confined_to")],
        options={"db_table": "ledger_batch", "default_permissions": ()},
    ),
    migrations.CreateModel(
        name="BatchListing",
        fields=[*batch_columns(), *text_key()],
        options={
            "db_table": "ledger_batch_listing",
            "default_permissions": ("view",),
            "managed": False,
            "verbose_name": "batch",
            "verbose_name_plural": "batches",
        },
    ),
    migrations.CreateModel(
        name="StaffEvent",
        fields=[
            ("id", models.BigAutoField(primary_key=True, serialize=False)),
            ("recorded_at", models.DateTimeField()),
            ("actor", models.TextField()),
            ("address", models.TextField()),
            ("action", models.TextField()),
            ("object", models.TextField()),
            ("details", models.TextField()),
            ("request_id", models.TextField()),
        ],
        options={
            "db_table": "ledger_staff_event",
            "default_permissions": ("view",),
            "verbose_name": "staff event",
            "verbose_name_plural": "staff log",
        },
    ),
]


class Migration(LedgerMigration):
    initial = True

    operations: ClassVar[list[Operation]] = [
        migrations.RunSQL(SCHEMA, state_operations=[CreateModels(MODELS)]),
    ]
