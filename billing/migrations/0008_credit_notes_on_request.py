"""Credit notes on request: documents with a number, lines and taxes, frozen and never more than their invoice."""

from pathlib import Path
from typing import ClassVar

import django.db.models.deletion
import django.db.models.expressions
from django.db import migrations, models
from django.db.migrations.operations.base import Operation

HERE = Path(__file__).parent


class Migration(migrations.Migration):
    dependencies: ClassVar[list[tuple[str, str]]] = [("billing", "0007_deleted_drafts")]

    operations: ClassVar[list[Operation]] = [
        migrations.AlterModelOptions(
            name='invoice',
            options={'permissions': [('finalize_invoice', 'Can finalise a draft'), ('pay_invoice', 'Can mark an invoice as paid'), ('void_invoice', 'Can void an invoice'), ('give_up_invoice', 'Can mark an invoice as uncollectible'), ('delete_draft', 'Can delete a draft'), ('credit_invoice', 'Can credit an invoice')]},
        ),
        migrations.AddField(
            model_name='creditnote',
            name='actor',
            field=models.CharField(blank=True, db_default='', default='', max_length=200),
        ),
        migrations.AddField(
            model_name='creditnote',
            name='credits_returned',
            field=models.BigIntegerField(db_comment='prepaid credits that went back to the holder', db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='creditnote',
            name='credits_returned_minor',
            field=models.BigIntegerField(db_comment='the part of the payment that they were', db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='creditnote',
            name='issue_date',
            field=models.DateField(null=True),
        ),
        migrations.AddField(
            model_name='creditnote',
            name='kind',
            field=models.CharField(choices=[('carried', 'Carried'), ('requested', 'Requested')], db_default='carried', default='carried', max_length=10),
        ),
        migrations.AddField(
            model_name='creditnote',
            name='number',
            field=models.CharField(max_length=48, null=True, unique=True),
        ),
        migrations.AddField(
            model_name='creditnote',
            name='reason',
            field=models.CharField(blank=True, db_default='', default='', max_length=500),
        ),
        migrations.AddField(
            model_name='creditnote',
            name='refund_sequence',
            field=models.BigIntegerField(db_comment="the ledger's entry of it", null=True),
        ),
        migrations.AddField(
            model_name='creditnote',
            name='series',
            field=models.CharField(blank=True, db_default='', default='', max_length=32),
        ),
        migrations.AddField(
            model_name='creditnote',
            name='series_value',
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name='creditnote',
            name='subtotal_minor',
            field=models.BigIntegerField(db_comment='before tax; null on a carried one', null=True),
        ),
        migrations.AddField(
            model_name='creditnote',
            name='tax_minor',
            field=models.BigIntegerField(null=True),
        ),
        migrations.AlterField(
            model_name='creditnote',
            name='amount_minor',
            field=models.BigIntegerField(db_comment='with tax; what is left follows from its uses and credits_returned_minor'),
        ),
        migrations.AlterField(
            model_name='creditnote',
            name='invoice_id',
            field=models.BigIntegerField(db_comment='the invoice that it arose on, or corrects'),
        ),
        migrations.AlterField(
            model_name='creditnote',
            name='released_at',
            field=models.DateTimeField(db_comment='when its invoice was voided, and it with it', null=True),
        ),
        migrations.AddIndex(
            model_name='creditnote',
            index=models.Index(fields=['subscription', '-id'], name='billing_creditnote_list'),
        ),
        migrations.AddConstraint(
            model_name='creditnote',
            constraint=models.UniqueConstraint(fields=('series', 'series_value'), name='billing_creditnote_series'),
        ),
        migrations.AddConstraint(
            model_name='creditnote',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('credits_returned_minor', 0), ('kind', 'carried'), ('number', None), ('series_value', None)), models.Q(('amount_minor', django.db.models.expressions.CombinedExpression(models.F('subtotal_minor'), '+', models.F('tax_minor'))), ('amount_minor__gt', 0), ('kind', 'requested')), _connector='OR'), name='billing_creditnote_figures'),
        ),
        migrations.CreateModel(
            name='CreditNoteLine',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('position', models.PositiveIntegerField(db_comment="of the invoice's line")),
                ('description', models.CharField(max_length=500)),
                ('amount_minor', models.BigIntegerField(db_comment='after discounts, before tax; negative where a credit is taken back')),
                ('tax_category', models.CharField(max_length=32)),
                ('tax_rate', models.DecimalField(db_comment='percent', decimal_places=12, max_digits=38)),
                ('credit_note', models.ForeignKey(on_delete=django.db.models.deletion.DO_NOTHING, related_name='lines', to='billing.creditnote')),
            ],
            options={
                'constraints': [
                    models.UniqueConstraint(fields=('credit_note', 'position'), name='billing_creditnoteline_position'),
                ],
            },
        ),
        migrations.CreateModel(
            name='CreditNoteTax',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('category', models.CharField(max_length=32)),
                ('rate', models.DecimalField(db_comment='percent', decimal_places=12, max_digits=38)),
                ('base_minor', models.BigIntegerField()),
                ('amount_minor', models.BigIntegerField()),
                ('credit_note', models.ForeignKey(on_delete=django.db.models.deletion.DO_NOTHING, related_name='taxes', to='billing.creditnote')),
            ],
            options={
                'constraints': [
                    models.UniqueConstraint(fields=('credit_note', 'category', 'rate'), name='billing_creditnotetax_category'),
                ],
            },
        ),
        migrations.RunSQL(
            (HERE / "0008_credit_notes_on_request.sql").read_text(),
            (HERE / "0008_credit_notes_on_request_down.sql").read_text(),
        ),
    ]
