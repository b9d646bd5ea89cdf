"""The schema of approvals and preferences: schema.sql makes it, the operations below tell Django's models of it."""

from pathlib import Path
from typing import ClassVar

from django.db import migrations, models
from django.db.migrations.operations.base import Operation

from ledger.database.schema_changes import CreateModels, LedgerMigration

SCHEMA = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")

MODELS = [
    migrations.CreateModel(
        name="Approval",
        fields=[
            ("id", models.BigAutoField(primary_key=True, serialize=False)),
            ("idempotency_key", models.TextField()),
            ("title", models.TextField()),
            ("path", models.TextField()),
            ("query", models.TextField()),
            ("form", models.JSONField()),
            ("stakes", models.JSONField()),
            ("reason", models.TextField()),
            ("requested_by", models.TextField()),
            ("requested_at", models.DateTimeField()),
        ],
        options={"db_table": "ledger_approval", "default_permissions": ("view",)},
    ),
    migrations.CreateModel(
        name="ApprovalDecision",
        fields=[
            ("approval_id", models.BigIntegerField(primary_key=True, serialize=False)),
            ("decision", models.TextField()),
            ("decided_by", models.TextField()),
            ("reason", models.TextField()),
            ("decided_at", models.DateTimeField()),
        ],
        options={"db_table": "ledger_approval_decision", "default_permissions": ()},
    ),
    migrations.CreateModel(
        name="Operator",
        fields=[
            ("user_id", models.IntegerField(primary_key=True, serialize=False)),
            ("time_zone", models.CharField(max_length=64)),
        ],
        options={"db_table": "ledger_operator", "default_permissions": ()},
    ),
]


class Migration(LedgerMigration):
    initial = True

    dependencies: ClassVar[list[tuple[str, str]]] = [("ledger", "0001_initial")]
    operations: ClassVar[list[Operation]] = [
        migrations.RunSQL(SCHEMA, state_operations=[CreateModels(MODELS)]),
    ]
