"""An entry stores from when it counts only where that is not when it was recorded."""

from typing import ClassVar

from django.db import migrations, models
from django.db.migrations.operations.base import Operation

from ledger.migrations.sql import read


class Migration(migrations.Migration):
    dependencies: ClassVar[list[tuple[str, str]]] = [("ledger", "0007_lots_form")]

    operations: ClassVar[list[Operation]] = [
        migrations.RunSQL(
            read("0008_effective_at.sql"),
            read("0008_effective_at_down.sql"),
            state_operations=[
                migrations.AlterField(model_name="entry", name="effective_at", field=models.DateTimeField(null=True)),
            ],
        ),
    ]
