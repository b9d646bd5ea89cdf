"""What requests that are answered together begin with, no dearer while a table is small."""

from typing import ClassVar

from django.db import migrations
from django.db.migrations.operations.base import Operation

from ledger.migrations.sql import read

BEFORE = read("0010_open_many.sql").replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", 1)


class Migration(migrations.Migration):
    dependencies: ClassVar[list[tuple[str, str]]] = [("ledger", "0010_open_many")]

    operations: ClassVar[list[Operation]] = [migrations.RunSQL(read("0011_open_many_joined.sql"), BEFORE)]
