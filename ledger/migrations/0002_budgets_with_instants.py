"""A budget counts only while it is in force."""

from typing import ClassVar

from django.db.migrations.operations.base import Operation

from ledger.database.schema_changes import ExecuteFile, LedgerMigration


class Migration(LedgerMigration):
    release = "0.2.2"
    code_from = "0.2.0"
    effect = "It has the trigger that counts the use of budgets refuse what a budget counts before it is in force, or after its end."
    lock = "It locks no rows and no table that a call needs; calls go on."

    dependencies: ClassVar[list[tuple[str, str]]] = [("ledger", "0001_initial")]
    operations: ClassVar[list[Operation]] = [ExecuteFile(__file__)]
