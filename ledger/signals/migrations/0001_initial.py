"""The schema of signals: schema.sql makes it, the operations below tell Django's models of it."""

from pathlib import Path
from typing import ClassVar

from django.db import migrations, models
from django.db.migrations.operations.base import Operation
from django.db.models.functions import Now

from ledger.database.schema_changes import CreateModels, LedgerMigration
from ledger.models import ExactJSON
from ledger.operators.permissions import added_to
from ledger.signals.permissions import PERMISSIONS

SCHEMA = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")

MODELS = [
    migrations.CreateModel(
        name="Webhook",
        fields=[
            ("id", models.BigAutoField(primary_key=True, serialize=False)),
            ("url", models.TextField(verbose_name="URL")),
            ("description", models.TextField(blank=True)),
            ("types", models.JSONField()),
            ("holder_id", models.TextField(null=True, verbose_name="holder")),
            ("secret", models.TextField()),
            ("former_secret", models.TextField(null=True)),
            ("former_until", models.DateTimeField(null=True)),
            ("rotated_at", models.DateTimeField(null=True)),
            ("created_at", models.DateTimeField(db_default=Now())),
            ("created_by", models.TextField(blank=True)),
            ("disabled_at", models.DateTimeField(null=True)),
            ("disabled_because", models.TextField(null=True)),
            ("removed_at", models.DateTimeField(null=True)),
        ],
        options={
            "db_table": "ledger_webhook",
            "default_permissions": ("view",),
            "permissions": added_to("webhook", PERMISSIONS),
        },
    ),
    migrations.CreateModel(
        name="WebhookChange",
        fields=[
            ("id", models.BigAutoField(primary_key=True, serialize=False)),
            ("webhook_id", models.BigIntegerField()),
            ("action", models.TextField()),
            ("idempotency_key", models.TextField(null=True)),
            ("request_digest", models.BinaryField(null=True)),
            ("body", ExactJSON(null=True)),
            ("actor", models.TextField()),
            ("request_id", models.TextField()),
            ("recorded_at", models.DateTimeField()),
        ],
        options={"db_table": "ledger_webhook_change", "default_permissions": ()},
    ),
    migrations.CreateModel(
        name="Alert",
        fields=[
            ("id", models.BigAutoField(primary_key=True, serialize=False)),
            ("name", models.TextField()),
            ("holder_id", models.TextField(null=True, verbose_name="holder")),
            ("credit_type", models.TextField(null=True)),
            ("is_ended", models.BooleanField()),
            ("below", models.BigIntegerField(null=True)),
            ("below_percent", models.IntegerField(null=True)),
            ("days_left", models.IntegerField(null=True)),
            ("rate_days", models.IntegerField(null=True)),
            ("expiring_days", models.IntegerField(null=True)),
            ("idempotency_key", models.TextField(null=True)),
            ("request_digest", models.BinaryField(null=True)),
            ("reason", models.TextField(blank=True)),
            ("actor", models.TextField()),
            ("request_id", models.TextField()),
            ("recorded_at", models.DateTimeField()),
        ],
        options={
            "db_table": "ledger_alert",
            "default_permissions": ("view",),
            "permissions": added_to("alert", PERMISSIONS),
        },
    ),
]


class Migration(LedgerMigration):
    initial = True

    dependencies: ClassVar[list[tuple[str, str]]] = [("ledger", "0001_initial")]
    operations: ClassVar[list[Operation]] = [
        migrations.RunSQL(SCHEMA, state_operations=[CreateModels(MODELS)]),
    ]
