"""Keys are unique, and found, by 8 bytes of their SHA-256."""

from typing import ClassVar

from django.db import migrations
from django.db.migrations.operations.base import Operation

from ledger.migrations.sql import read


class Migration(migrations.Migration):
    dependencies: ClassVar[list[tuple[str, str]]] = [("ledger", "0005_digest_chain")]

    operations: ClassVar[list[Operation]] = [
        migrations.RunSQL(read("0006_key_hash.sql"), read("0006_key_hash_down.sql")),
    ]
