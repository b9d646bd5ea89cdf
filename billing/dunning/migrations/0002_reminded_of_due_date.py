"""The signal of a reminder says when the invoice was due."""

from typing import ClassVar

from django.db.migrations.operations.base import Operation

from ledger.database.schema_changes import ExecuteFile, LedgerMigration


class Migration(LedgerMigration):
    release = "0.2.1"
    code_from = "0.2.0"
    effect = "It adds the due date to the data of the signal invoice.reminded."
    lock = "It replaces a function, which keeps nobody waiting; calls go on."

    dependencies: ClassVar[list[tuple[str, str]]] = [("billing_dunning", "0001_initial")]
    operations: ClassVar[list[Operation]] = [ExecuteFile(__file__)]
