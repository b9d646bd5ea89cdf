"""An entry does without the digest of the one before it, which is stored there."""

from typing import ClassVar

from django.db import migrations
from django.db.migrations.operations.base import Operation

from ledger.migrations.sql import read


class Migration(migrations.Migration):
    dependencies: ClassVar[list[tuple[str, str]]] = [("ledger", "0004_operators_pages")]

    operations: ClassVar[list[Operation]] = [
        migrations.RunSQL(
            read("0005_digest_chain.sql"),
            read("0005_digest_chain_down.sql"),
            state_operations=[
                migrations.RemoveField(model_name=model, name="previous_digest") for model in ("entry", "account", "entrylisting")
            ],
        ),
    ]
