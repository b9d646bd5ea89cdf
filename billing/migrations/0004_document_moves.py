"""Who moved a document by hand, and why: append-only."""

from typing import ClassVar

import django.db.models.functions.datetime
from django.db import migrations, models
from django.db.migrations.operations.base import Operation

APPEND_ONLY = """
    CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_documentmove
        FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
    ALTER TABLE billing_documentmove ENABLE ALWAYS TRIGGER append_only;
"""


class Migration(migrations.Migration):
    dependencies: ClassVar[list[tuple[str, str]]] = [("billing", "0003_operators_pages")]

    operations: ClassVar[list[Operation]] = [
        migrations.CreateModel(
            name="DocumentMove",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("invoice_id", models.BigIntegerField()),
                ("move", models.CharField(db_comment="finalize, pay, void or give_up", max_length=16)),
                ("actor", models.CharField(max_length=200)),
                ("reason", models.CharField(max_length=500)),
                ("recorded_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "default_permissions": (),
                "indexes": [models.Index(fields=["invoice_id", "id"], name="billing_documentmove_invoice")],
            },
        ),
        migrations.RunSQL(APPEND_ONLY, "DROP TRIGGER append_only ON billing_documentmove;"),
    ]
