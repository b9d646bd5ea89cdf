"""The index of the newest entries is by slots of five seconds."""

from typing import ClassVar

from django.db import migrations
from django.db.migrations.operations.base import Operation

from ledger.migrations.sql import read


class Migration(migrations.Migration):
    dependencies: ClassVar[list[tuple[str, str]]] = [("ledger", "0008_effective_at")]

    operations: ClassVar[list[Operation]] = [
        migrations.RunSQL(read("0009_recorded_slots.sql"), read("0009_recorded_slots_down.sql")),
    ]
