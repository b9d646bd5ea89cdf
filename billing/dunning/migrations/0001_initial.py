"""The tables of mails and reminders as models.py has them, then what models cannot say as schema.sql has it."""

from pathlib import Path

import django.db.models.deletion
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
                name='Reminder',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('invoice_id', models.BigIntegerField()),
                    ('customer', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing.customer')),
                    ('step', models.PositiveIntegerField(db_comment='1, 2, 3 …')),
                    ('remaining_minor', models.BigIntegerField(db_comment='what was still to be paid')),
                    ('fee_minor', models.BigIntegerField(default=0)),
                    ('charge_id', models.BigIntegerField(db_comment='billing_charge.id of the fee; null: no fee', null=True)),
                    ('suspends', models.BooleanField(db_comment='it suspended the billing of the subscription', default=False)),
                    ('reminded_on', models.DateField(db_comment='the day of the customer, by its test clock')),
                    ('actor', models.CharField(db_comment='who sent it: billing, or a person who sent it at once', max_length=200)),
                    ('recorded_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ],
                options={
                    'db_table': 'billing_reminder',
                    'indexes': [models.Index(fields=['customer', '-id'], name='billing_reminder_customer')],
                    'constraints': [models.UniqueConstraint(fields=('invoice_id', 'step'), name='billing_reminder_once'), models.CheckConstraint(condition=models.Q(models.Q(('charge_id', None), ('fee_minor', 0)), models.Q(('charge_id__isnull', False), ('fee_minor__gt', 0)), _connector='OR'), name='billing_reminder_fee'), models.CheckConstraint(condition=models.Q(('remaining_minor__gte', 1), ('step__gte', 1)), name='billing_reminder_step')],
                    'permissions': [('send_reminder', 'Can send a reminder at once')],
                    'default_permissions': (),
                },
            ),
            migrations.CreateModel(
                name='ReminderHold',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('invoice_id', models.BigIntegerField(db_comment='null: all invoices of the customer', null=True)),
                    ('customer', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing.customer')),
                    ('until', models.DateField(db_comment='the first day of the customer with reminders; null: until it is released', null=True)),
                    ('reason', models.CharField(max_length=500)),
                    ('actor', models.CharField(max_length=200)),
                    ('recorded_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                    ('released_at', models.DateTimeField(null=True)),
                    ('released_by', models.CharField(blank=True, default='', max_length=200)),
                    ('release_reason', models.CharField(blank=True, default='', max_length=500)),
                ],
                options={
                    'db_table': 'billing_reminderhold',
                    'indexes': [models.Index(fields=['customer', '-id'], name='billing_reminderhold_customer'), models.Index(condition=models.Q(('invoice_id__isnull', False)), fields=['invoice_id', '-id'], name='billing_reminderhold_invoice')],
                    'permissions': [('hold_reminders', 'Can put reminders on hold')],
                    'default_permissions': (),
                },
            ),
            migrations.CreateModel(
                name='Mail',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('kind', models.CharField(db_comment='invoice, or reminder_ and the step', max_length=16)),
                    ('invoice_id', models.BigIntegerField()),
                    ('customer', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing.customer')),
                    ('identity', models.UUIDField(db_comment='in the Message-ID, the same on each try', unique=True)),
                    ('recipient', models.CharField(db_comment='personal; empty: the customer was erased', max_length=254)),
                    ('state', models.CharField(choices=[('waiting', 'Waiting'), ('handed_over', 'Handed Over'), ('sent', 'Sent'), ('bounced', 'Bounced'), ('failed', 'Failed'), ('unknown', 'Unknown')], db_default='waiting', default='waiting', max_length=16)),
                    ('tries', models.PositiveIntegerField(db_default=0, default=0)),
                    ('due_at', models.DateTimeField(db_comment='of a waiting one: when it is tried next', db_default=django.db.models.functions.datetime.Now())),
                    ('error', models.CharField(blank=True, db_default='', default='', max_length=500)),
                    ('queued_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                    ('handed_over_at', models.DateTimeField(db_comment='when a mail server was about to get it', null=True)),
                    ('ended_at', models.DateTimeField(db_comment='when it was sent, bounced, or given up', null=True)),
                ],
                options={
                    'db_table': 'billing_mail',
                    'permissions': [('send_mail_again', 'Can have a mail sent again')],
                    'indexes': [models.Index(condition=models.Q(('state', 'waiting')), fields=['due_at', 'id'], name='billing_mail_due'), models.Index(condition=models.Q(('state', 'handed_over')), fields=['handed_over_at'], name='billing_mail_handed'), models.Index(fields=['customer', '-id'], name='billing_mail_customer'), models.Index(fields=['invoice_id'], name='billing_mail_invoice'), models.Index(fields=['state', '-id'], name='billing_mail_state')],
                    'constraints': [models.UniqueConstraint(fields=('kind', 'invoice_id'), name='billing_mail_once')],
                },
            ),
        ]),
        migrations.RunSQL((Path(__file__).parent / 'schema.sql').read_text(encoding='utf-8')),
    ]
