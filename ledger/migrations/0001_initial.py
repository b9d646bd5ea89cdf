"""The ledger: append-only tables with their constraints, triggers, functions and views; API keys."""

from typing import ClassVar

from django.db import migrations, models
from django.db.migrations.operations.base import Operation

import ledger.models
from ledger.migrations.sql import read

DROP_TABLES = "DROP TABLE ledger_refusal; DROP TABLE ledger_entry;"
DROP_FUNCTIONS = """
    DROP TRIGGER append_only ON ledger_refusal;
    DROP TRIGGER append_only ON ledger_entry;
    DROP TRIGGER follows ON ledger_entry;
    DROP FUNCTION ledger_entry_follows();
    DROP FUNCTION ledger_entry_digest(ledger_entry);
    DROP FUNCTION ledger_sequence_at(text, text, timestamptz);
    DROP FUNCTION ledger_open(bigint, text, text, text);
    DROP FUNCTION refuse_change();
"""
DROP_VIEWS = """
    DROP VIEW ledger_account;
    DROP VIEW ledger_refusal_listing;
    DROP VIEW ledger_entry_listing;
    DROP VIEW ledger_drawn;
"""


DROP_REFERENCE_RULES = """
    DROP TRIGGER append_only ON ledger_batch;
    ALTER TABLE ledger_rate DROP CONSTRAINT ledger_rate_positive;
    DROP INDEX ledger_rate_key;
    DROP TRIGGER append_only ON ledger_rate;
"""


class Migration(migrations.Migration):
    initial = True

    operations: ClassVar[list[Operation]] = [
        migrations.RunSQL(
            read("0001_tables.sql"),
            DROP_TABLES,
            state_operations=[
                migrations.CreateModel(
                    name="Entry",
                    fields=[
                        ("holder_id", models.TextField(verbose_name="holder")),
                        ("credit_type", models.TextField()),
                        ("sequence", models.BigIntegerField()),
                        ("amount", models.BigIntegerField()),
                        ("balance", models.BigIntegerField()),
                        ("held", models.BigIntegerField()),
                        ("closes", models.BigIntegerField(null=True)),
                        ("settled", models.BigIntegerField(null=True)),
                        ("overdraft", models.BigIntegerField(null=True)),
                        ("effective_at", models.DateTimeField()),
                        ("recorded_at", models.DateTimeField()),
                        ("kind", models.TextField()),
                        ("lots", ledger.models.ExactJSON()),
                        ("drawn", ledger.models.ExactJSON()),
                        ("holds", ledger.models.ExactJSON(null=True)),
                        ("counterpart", ledger.models.ExactJSON(null=True)),
                        ("rating", ledger.models.ExactJSON(null=True)),
                        ("idempotency_key", models.TextField(null=True)),
                        ("request_digest", models.BinaryField(null=True)),
                        ("actor", models.TextField()),
                        ("reason", models.TextField()),
                        ("reference", models.TextField()),
                        ("metadata", ledger.models.ExactJSON(null=True)),
                        ("previous_digest", models.BinaryField()),
                        ("digest", models.BinaryField()),
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "holder_id",
                                "credit_type",
                                "sequence",
                                blank=True,
                                editable=False,
                                primary_key=True,
                                serialize=False,
                            ),
                        ),
                    ],
                    options={
                        "verbose_name_plural": "entries",
                        "db_table": "ledger_entry",
                    },
                ),
                migrations.CreateModel(
                    name="Refusal",
                    fields=[
                        ("holder_id", models.TextField(verbose_name="holder")),
                        ("idempotency_key", models.TextField()),
                        ("recorded_at", models.DateTimeField()),
                        ("operation", models.TextField()),
                        ("credit_type", models.TextField()),
                        ("code", models.TextField()),
                        ("facts", ledger.models.ExactJSON()),
                        ("request", ledger.models.ExactJSON()),
                        ("request_digest", models.BinaryField()),
                        ("request_id", models.TextField()),
                        ("actor", models.TextField()),
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "holder_id", "idempotency_key", blank=True, editable=False, primary_key=True, serialize=False
                            ),
                        ),
                    ],
                    options={
                        "db_table": "ledger_refusal",
                    },
                ),
            ],
        ),
        migrations.RunSQL(read("0001_functions.sql"), DROP_FUNCTIONS),
        migrations.RunSQL(
            read("0001_views.sql"),
            DROP_VIEWS,
            state_operations=[
                migrations.CreateModel(
                    name="Account",
                    fields=[
                        ("holder_id", models.TextField(verbose_name="holder")),
                        ("credit_type", models.TextField()),
                        ("sequence", models.BigIntegerField()),
                        ("amount", models.BigIntegerField()),
                        ("balance", models.BigIntegerField()),
                        ("held", models.BigIntegerField()),
                        ("closes", models.BigIntegerField(null=True)),
                        ("settled", models.BigIntegerField(null=True)),
                        ("overdraft", models.BigIntegerField(null=True)),
                        ("effective_at", models.DateTimeField()),
                        ("recorded_at", models.DateTimeField()),
                        ("kind", models.TextField()),
                        ("lots", ledger.models.ExactJSON()),
                        ("drawn", ledger.models.ExactJSON()),
                        ("holds", ledger.models.ExactJSON(null=True)),
                        ("counterpart", ledger.models.ExactJSON(null=True)),
                        ("rating", ledger.models.ExactJSON(null=True)),
                        ("idempotency_key", models.TextField(null=True)),
                        ("request_digest", models.BinaryField(null=True)),
                        ("actor", models.TextField()),
                        ("reason", models.TextField()),
                        ("reference", models.TextField()),
                        ("metadata", ledger.models.ExactJSON(null=True)),
                        ("previous_digest", models.BinaryField()),
                        ("digest", models.BinaryField()),
                        ("id", models.TextField(primary_key=True, serialize=False)),
                    ],
                    options={
                        "verbose_name": "holder's balance",
                        "verbose_name_plural": "holders with balances",
                        "db_table": "ledger_account",
                        "managed": False,
                    },
                ),
                migrations.CreateModel(
                    name="EntryListing",
                    fields=[
                        ("holder_id", models.TextField(verbose_name="holder")),
                        ("credit_type", models.TextField()),
                        ("sequence", models.BigIntegerField()),
                        ("amount", models.BigIntegerField()),
                        ("balance", models.BigIntegerField()),
                        ("held", models.BigIntegerField()),
                        ("closes", models.BigIntegerField(null=True)),
                        ("settled", models.BigIntegerField(null=True)),
                        ("overdraft", models.BigIntegerField(null=True)),
                        ("effective_at", models.DateTimeField()),
                        ("recorded_at", models.DateTimeField()),
                        ("kind", models.TextField()),
                        ("lots", ledger.models.ExactJSON()),
                        ("drawn", ledger.models.ExactJSON()),
                        ("holds", ledger.models.ExactJSON(null=True)),
                        ("counterpart", ledger.models.ExactJSON(null=True)),
                        ("rating", ledger.models.ExactJSON(null=True)),
                        ("idempotency_key", models.TextField(null=True)),
                        ("request_digest", models.BinaryField(null=True)),
                        ("actor", models.TextField()),
                        ("reason", models.TextField()),
                        ("reference", models.TextField()),
                        ("metadata", ledger.models.ExactJSON(null=True)),
                        ("previous_digest", models.BinaryField()),
                        ("digest", models.BinaryField()),
                        ("id", models.TextField(primary_key=True, serialize=False)),
                    ],
                    options={
                        "verbose_name": "entry",
                        "verbose_name_plural": "entries",
                        "db_table": "ledger_entry_listing",
                        "managed": False,
                    },
                ),
                migrations.CreateModel(
                    name="RefusalListing",
                    fields=[
                        ("holder_id", models.TextField(verbose_name="holder")),
                        ("idempotency_key", models.TextField()),
                        ("recorded_at", models.DateTimeField()),
                        ("operation", models.TextField()),
                        ("credit_type", models.TextField()),
                        ("code", models.TextField()),
                        ("facts", ledger.models.ExactJSON()),
                        ("request", ledger.models.ExactJSON()),
                        ("request_digest", models.BinaryField()),
                        ("request_id", models.TextField()),
                        ("actor", models.TextField()),
                        ("id", models.TextField(primary_key=True, serialize=False)),
                    ],
                    options={
                        "verbose_name": "refusal",
                        "verbose_name_plural": "refusals",
                        "db_table": "ledger_refusal_listing",
                        "managed": False,
                    },
                ),
            ],
        ),
        migrations.CreateModel(
            name="ApiKey",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "name",
                    models.CharField(
                        db_comment="Becomes the actor of what is done with the key: key:<name>.", max_length=100, unique=True
                    ),
                ),
                ("prefix", models.CharField(db_comment="The first characters, to recognise the key by.", max_length=8)),
                ("key_digest", models.BinaryField(db_comment="SHA-256 of the key.", unique=True)),
                ("scopes", models.JSONField(db_comment="List of scopes.")),
                (
                    "holder_id",
                    models.TextField(
                        blank=True, db_comment="The one holder that the key is confined to; null for all.", null=True
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("created_by", models.CharField(blank=True, max_length=200)),
                ("revoked_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "verbose_name": "API key",
                "db_table": "ledger_api_key",
            },
        ),
        migrations.CreateModel(
            name="Rate",
            fields=[
                ("credit_type", models.TextField()),
                ("code", models.TextField()),
                ("version", models.IntegerField()),
                ("price", models.BigIntegerField(db_comment="For so many credits …")),
                ("per", models.BigIntegerField(db_comment="… one gets so many units; started credits are counted whole.")),
                ("published_at", models.DateTimeField()),
                ("published_by", models.TextField(blank=True)),
                (
                    "idempotency_key",
                    models.TextField(db_comment="The request that published it; null where nobody gave a key.", null=True),
                ),
                ("request_digest", models.BinaryField(null=True)),
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "credit_type", "code", "version", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
            ],
            options={"db_table": "ledger_rate"},
        ),
        migrations.CreateModel(
            name="Batch",
            fields=[
                ("idempotency_key", models.TextField(primary_key=True, serialize=False)),
                ("request_digest", models.BinaryField()),
                ("mode", models.TextField()),
                ("outcomes", ledger.models.ExactJSON(db_comment="Per operation: what it takes to tell its answer again.")),
                ("recorded_at", models.DateTimeField()),
                ("actor", models.TextField()),
                ("request_id", models.TextField()),
            ],
            options={"db_table": "ledger_batch", "verbose_name_plural": "batches"},
        ),
        migrations.RunSQL(read("0001_reference_tables.sql"), DROP_REFERENCE_RULES),
    ]
