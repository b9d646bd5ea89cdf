"""Constraints, partitions and triggers that Django's models cannot say."""

from pathlib import Path

from django.db import migrations

HERE = Path(__file__).parent


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0001_tables"),
        # refuse_change() comes with the ledger's first migrations.
        ("ledger", "0001_initial"),
    ]

    operations = [
        migrations.RunSQL((HERE / "0002_rules.sql").read_text(), (HERE / "0002_rules_down.sql").read_text()),
    ]
