"""Who revoked an API key."""

from typing import ClassVar

from django.db import migrations, models
from django.db.migrations.operations.base import Operation

from ledger.database.schema_changes import ExecuteFile, LedgerMigration


class Migration(LedgerMigration):
    release = "0.2.1"
    code_from = "0.2.0"
    effect = "It adds a column that says who revoked an API key."
    lock = "It locks ledger_api_key for a moment; calls wait for it 2 s at most, and go on."

    dependencies: ClassVar[list[tuple[str, str]]] = [("ledger_keys", "0001_initial")]
    operations: ClassVar[list[Operation]] = [
        ExecuteFile(__file__, [migrations.AddField("apikey", "revoked_by", models.TextField(blank=True, null=True))]),
    ]
