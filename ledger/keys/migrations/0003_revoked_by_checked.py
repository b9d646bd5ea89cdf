"""The CHECK of 0002 holds for the rows of before, too."""

from typing import ClassVar

from django.db.migrations.operations.base import Operation

from ledger.database.schema_changes import ExecuteFile, LedgerMigration


class Migration(LedgerMigration):
    release = "0.2.1"
    code_from = "0.2.0"
    effect = "It looks whether all API keys fit the new column's CHECK."
    lock = "It locks nothing that a call needs; calls go on."

    dependencies: ClassVar[list[tuple[str, str]]] = [("ledger_keys", "0002_revoked_by")]
    operations: ClassVar[list[Operation]] = [ExecuteFile(__file__)]
