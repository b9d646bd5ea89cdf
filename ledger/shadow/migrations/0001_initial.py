"""The schema of the shadow: schema.sql makes it, the operations below tell Django's models of it."""

from pathlib import Path
from typing import ClassVar

from django.db import migrations, models
from django.db.migrations.operations.base import Operation

from ledger.database.schema_changes import CreateModels, LedgerMigration
from ledger.models import ExactJSON

SCHEMA = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")

MODELS = [
    migrations.CreateModel(
        name="Observation",
        fields=[
            ("id", models.BigAutoField(primary_key=True, serialize=False)),
            ("holder_id", models.TextField(verbose_name="holder")),
            ("credit_type", models.TextField()),
            ("number", models.BigIntegerField()),
            ("idempotency_key", models.TextField(null=True)),
            ("request_digest", models.BinaryField(null=True)),
            ("operation", models.TextField()),
            ("amount", models.BigIntegerField(null=True)),
            ("is_allowed", models.BooleanField()),
            ("balance", models.BigIntegerField()),
            ("of_key", models.TextField(null=True)),
            ("reference", models.TextField(blank=True)),
            ("occurred_at", models.DateTimeField()),
            ("ledger_allows", models.BooleanField(null=True)),
            ("ledger_balance", models.BigIntegerField(null=True)),
            ("refusal", ExactJSON(null=True)),
            ("difference", models.TextField(null=True)),
            ("differences", models.BigIntegerField()),
            ("first_difference", models.BigIntegerField(null=True)),
            ("sequence", models.BigIntegerField(null=True)),
            ("parts", ExactJSON(null=True)),
            ("state", ExactJSON()),
            ("actor", models.TextField()),
            ("request_id", models.TextField()),
            ("recorded_at", models.DateTimeField()),
        ],
        options={"db_table": "ledger_observation", "default_permissions": ("view",)},
    ),
    migrations.CreateModel(
        name="Promotion",
        fields=[
            ("id", models.BigAutoField(primary_key=True, serialize=False)),
            ("holder_id", models.TextField(verbose_name="holder")),
            ("number", models.BigIntegerField()),
            ("is_return", models.BooleanField()),
            ("accounts", ExactJSON()),
            ("reason", models.TextField(blank=True)),
            ("actor", models.TextField()),
            ("request_id", models.TextField()),
            ("recorded_at", models.DateTimeField()),
        ],
        options={"db_table": "ledger_promotion", "default_permissions": ()},
    ),
]


class Migration(LedgerMigration):
    initial = True

    dependencies: ClassVar[list[tuple[str, str]]] = [("ledger", "0001_initial")]
    operations: ClassVar[list[Operation]] = [
        migrations.RunSQL(SCHEMA, state_operations=[CreateModels(MODELS)]),
    ]
