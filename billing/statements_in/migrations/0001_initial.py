"""The table of bank receipts as models.py has it, then what models cannot say as schema.sql has it."""

from pathlib import Path

import django.db.models.functions.datetime
from django.db import migrations, models

from ledger.database.schema_changes import CreateModels, LedgerMigration


class Migration(LedgerMigration):

    initial = True

    dependencies = [
        ('billing', '0001_initial'),
    ]

    operations = [
        CreateModels([
            migrations.CreateModel(
                name='BankReceipt',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('name', models.CharField(db_comment="our name for it; the payment's id once it is booked", max_length=64, unique=True)),
                    ('account', models.CharField(blank=True, db_comment='the account that the statement is of', default='', max_length=64)),
                    ('bank_reference', models.CharField(blank=True, db_comment="the bank's own id of the entry", default='', max_length=200)),
                    ('end_to_end_reference', models.CharField(blank=True, db_comment='the id that the payer gave', default='', max_length=200)),
                    ('booked_on', models.DateField(db_comment='the day on which the bank booked it')),
                    ('value_on', models.DateField(db_comment='the day from which the bank counts it')),
                    ('currency', models.CharField(max_length=3)),
                    ('amount_minor', models.BigIntegerField()),
                    ('text', models.CharField(blank=True, db_comment='what the payer wrote', default='', max_length=2000)),
                    ('party', models.CharField(blank=True, db_comment='who paid: name, account or both', default='', max_length=500)),
                    ('file', models.CharField(db_comment='SHA-256 of the file, in hexadecimal', max_length=64)),
                    ('actor', models.CharField(max_length=200)),
                    ('recorded_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                    ('state', models.CharField(choices=[('left', 'Left'), ('booked', 'Booked'), ('put_aside', 'Put Aside')], default='left', max_length=16)),
                    ('why', models.CharField(blank=True, db_comment='why it is left; empty: it is not', default='', max_length=500)),
                    ('waits_for_person', models.BooleanField(db_comment='no file books it any more', default=False)),
                    ('invoice_id', models.BigIntegerField(db_comment='billing_invoice.id that it paid', null=True)),
                    ('payment_intent_id', models.BigIntegerField(db_comment='billing_paymentintent.id that it paid', null=True)),
                    ('settled_by', models.CharField(blank=True, db_comment='who booked it or put it aside', default='', max_length=200)),
                    ('settled_at', models.DateTimeField(null=True)),
                    ('note', models.CharField(blank=True, db_comment='why it was put aside', default='', max_length=500)),
                ],
                options={
                    'db_table': 'billing_bankreceipt',
                    'indexes': [models.Index(condition=models.Q(('state', 'left')), fields=['-id'], name='billing_bankreceipt_left'), models.Index(fields=['amount_minor', 'currency', 'booked_on'], name='billing_bankreceipt_equal')],
                    'constraints': [models.CheckConstraint(condition=models.Q(('amount_minor__gte', 1)), name='billing_bankreceipt_amount'), models.CheckConstraint(condition=models.Q(models.Q(('invoice_id__isnull', True), ('payment_intent_id__isnull', True), ('settled_at__isnull', True), ('state', 'left'), models.Q(('why', ''), _negated=True)), models.Q(('invoice_id__isnull', False), ('payment_intent_id__isnull', True), ('settled_at__isnull', False), ('state', 'booked')), models.Q(('invoice_id__isnull', True), ('payment_intent_id__isnull', False), ('settled_at__isnull', False), ('state', 'booked')), models.Q(('invoice_id__isnull', True), ('payment_intent_id__isnull', True), ('settled_at__isnull', False), ('state', 'put_aside')), _connector='OR'), name='billing_bankreceipt_state')],
                },
            ),
        ]),
        migrations.RunSQL((Path(__file__).parent / 'schema.sql').read_text(encoding='utf-8')),
    ]
