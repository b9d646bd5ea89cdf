"""The schema of totals: schema.sql makes it, the operations below tell Django's models of it."""

from pathlib import Path
from typing import ClassVar

from django.db import migrations, models
from django.db.migrations.operations.base import Operation

from ledger.database.schema_changes import CreateModels, LedgerMigration
from ledger.models import ExactJSON

SCHEMA = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")

LINES = (
    "granted_purchased", "granted_promotional", "granted_postpaid", "refunded", "transferred_in", "spent", "expired", "revoked",
    "transferred_out",
)  # fmt: skip

MODELS = [
    migrations.CreateModel(
        name="DailyTotal",
        fields=[
            ("day", models.DateField()),
            ("credit_type", models.TextField()),
            *[(name, models.DecimalField(decimal_places=0, max_digits=38)) for name in LINES],
            ("held_change", models.DecimalField(decimal_places=0, max_digits=38)),
            ("refusals", models.BigIntegerField()),
            ("entries", models.BigIntegerField()),
            ("late_entries", models.BigIntegerField(default=0)),
            ("pk", models.CompositePrimaryKey("day", "credit_type", blank=True, editable=False, primary_key=True, serialize=False)),
        ],
        options={"db_table": "ledger_daily_total", "default_permissions": ("view",)},
    ),
    migrations.CreateModel(
        name="ExpiringTotal",
        fields=[
            ("expires_us", models.BigIntegerField()),
            ("credit_type", models.TextField()),
            ("credits", models.DecimalField(decimal_places=0, max_digits=38)),
            ("pk", models.CompositePrimaryKey("expires_us", "credit_type", blank=True, editable=False, primary_key=True, serialize=False)),
        ],
        options={"db_table": "ledger_expiring_total", "default_permissions": ()},
    ),
    migrations.CreateModel(
        name="TotalState",
        fields=[
            ("is_only", models.BooleanField(default=True, primary_key=True, serialize=False)),
            ("counted_until", models.DateTimeField()),
            ("entries", models.JSONField(default=dict)),
        ],
        options={"db_table": "ledger_total_state", "default_permissions": ()},
    ),
    migrations.CreateModel(
        name="MonthClose",
        fields=[
            ("month", models.DateField()),
            ("credit_type", models.TextField()),
            ("accounts", models.BigIntegerField()),
            ("entries", models.BigIntegerField()),
            ("balance", models.DecimalField(decimal_places=0, max_digits=38)),
            ("held", models.DecimalField(decimal_places=0, max_digits=38)),
            ("outstanding", ExactJSON()),
            ("paid", ExactJSON()),
            ("ties", ExactJSON()),
            ("costs", ExactJSON()),
            ("closed_at", models.DateTimeField()),
            ("pk", models.CompositePrimaryKey("month", "credit_type", blank=True, editable=False, primary_key=True, serialize=False)),
        ],
        options={"db_table": "ledger_month_close", "default_permissions": ()},
    ),
]


class Migration(LedgerMigration):
    initial = True

    dependencies: ClassVar[list[tuple[str, str]]] = [("ledger", "0001_initial")]
    operations: ClassVar[list[Operation]] = [
        migrations.RunSQL(SCHEMA, state_operations=[CreateModels(MODELS)]),
    ]
