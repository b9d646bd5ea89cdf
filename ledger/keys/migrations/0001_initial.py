"""The schema of API keys: schema.sql makes it, the operations below tell Django's models of it."""

from pathlib import Path
from typing import ClassVar

from django.db import migrations, models
from django.db.migrations.operations.base import Operation
from django.db.models.functions import Now

from ledger.database.schema_changes import CreateModels, LedgerMigration
from ledger.keys.permissions import PERMISSIONS
from ledger.operators.permissions import added_to

SCHEMA = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")

MODELS = [
    migrations.CreateModel(
        name="ApiKey",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("name", models.CharField(max_length=100, unique=True)),
            ("prefix", models.CharField(max_length=8)),
            ("key_digest", models.BinaryField(unique=True)),
            ("scopes", models.JSONField()),
            ("is_before_split", models.BooleanField(default=False, db_default=True)),
            ("holder_id", models.TextField(blank=True, null=True)),
            ("labels", models.JSONField(blank=True, db_default={}, default=dict)),
            ("parent_id", models.BigIntegerField(blank=True, null=True)),
            ("created_at", models.DateTimeField(auto_now_add=True)),
            ("created_by", models.CharField(blank=True, max_length=200)),
            ("revoked_at", models.DateTimeField(blank=True, null=True)),
            ("expires_at", models.DateTimeField(blank=True, null=True)),
            ("requests_per_second", models.IntegerField(blank=True, null=True)),
            ("concurrent_requests", models.IntegerField(blank=True, null=True)),
            ("rotated_at", models.DateTimeField(blank=True, null=True)),
            ("former_digest", models.BinaryField(blank=True, null=True, unique=True)),
            ("former_until", models.DateTimeField(blank=True, null=True)),
            ("last_used_at", models.DateTimeField(blank=True, null=True)),
        ],
        options={
            "db_table": "ledger_api_key",
            "default_permissions": ("add", "view"),
            "permissions": added_to("apikey", PERMISSIONS),
            "verbose_name": "API key",
        },
    ),
    migrations.CreateModel(
        name="KeyRequest",
        fields=[
            ("idempotency_key", models.TextField()),
            ("confined_to", models.TextField()),
            ("request_digest", models.BinaryField()),
            ("key_id", models.BigIntegerField()),
            ("answer", models.JSONField()),
            ("recorded_at", models.DateTimeField(db_default=Now())),
            ("actor", models.TextField()),
            ("request_id", models.TextField()),
            (
                "pk",
                models.CompositePrimaryKey(
                    "idempotency_key", "confined_to", blank=True, editable=False, primary_key=True, serialize=False
                ),
            ),
        ],
        options={"db_table": "ledger_key_request", "default_permissions": ()},
    ),
]


class Migration(LedgerMigration):
    initial = True

    dependencies: ClassVar[list[tuple[str, str]]] = [("ledger", "0001_initial")]
    operations: ClassVar[list[Operation]] = [
        migrations.RunSQL(SCHEMA, state_operations=[CreateModels(MODELS)]),
    ]
