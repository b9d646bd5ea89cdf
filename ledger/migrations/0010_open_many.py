"""What requests that are answered together begin with."""

from typing import ClassVar

from django.db import migrations
from django.db.migrations.operations.base import Operation

from ledger.migrations.sql import read


class Migration(migrations.Migration):
    dependencies: ClassVar[list[tuple[str, str]]] = [("ledger", "0009_recorded_slots")]

    operations: ClassVar[list[Operation]] = [
        migrations.RunSQL(read("0010_open_many.sql"), "DROP FUNCTION ledger_open_many(bigint[], text[], text[], text[]);"),
    ]
