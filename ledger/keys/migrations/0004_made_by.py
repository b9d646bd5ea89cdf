"""The keys that a key has made are found by an index when it is revoked."""

from typing import ClassVar

from django.db.migrations.operations.base import Operation

from ledger.database.schema_changes import BuildIndex, LedgerMigration


class Migration(LedgerMigration):
    release = "0.2.1"
    code_from = "0.2.0"
    effect = "It builds the index by which a key that is revoked finds the keys that it has made."
    lock = "The index is built beside all calls; they go on."
    atomic = False

    dependencies: ClassVar[list[tuple[str, str]]] = [("ledger_keys", "0003_revoked_by_checked")]
    operations: ClassVar[list[Operation]] = [BuildIndex(__file__, "ledger_api_key_made_by")]
