"""The form of lots, which is shorter from here on; those that are stored stay as they are."""

from typing import ClassVar

from django.db import migrations
from django.db.migrations.operations.base import Operation

from ledger.migrations.sql import read

DOWN = """
COMMENT ON COLUMN ledger_entry.lots IS
    'Open lots after this entry in burn order: [grant, remaining, effective µs, expires µs, priority, 1 if promotional].'
"""


class Migration(migrations.Migration):
    dependencies: ClassVar[list[tuple[str, str]]] = [("ledger", "0006_key_hash")]

    operations: ClassVar[list[Operation]] = [migrations.RunSQL(read("0007_lots_form.sql"), DOWN)]
