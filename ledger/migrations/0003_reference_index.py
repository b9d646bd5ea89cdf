"""Find entries by their reference, over all holders."""

from typing import ClassVar

from django.db import migrations
from django.db.migrations.operations.base import Operation

from ledger.migrations.sql import read


class Migration(migrations.Migration):
    dependencies: ClassVar[list[tuple[str, str]]] = [("ledger", "0002_admin_permissions")]

    operations: ClassVar[list[Operation]] = [
        migrations.RunSQL(read("0003_reference_index.sql"), "DROP INDEX ledger_entry_reference;"),
    ]
