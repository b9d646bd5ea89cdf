"""The tables of packs, purchases, payment intents and top-ups as models.py has them, then what models cannot say as schema.sql has it."""

from datetime import UTC, datetime
from pathlib import Path

import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.datetime
from django.db import migrations, models

from ledger.database.schema_changes import CreateModels, LedgerMigration


def years(*columns):
    """These times lie in the years 2000 to 2200; null passes."""
    first, last = datetime(2000, 1, 1, tzinfo=UTC), datetime(2201, 1, 1, tzinfo=UTC)
    bounds = [(f'{column}__{bound}', value) for column in columns for bound, value in (('gte', first), ('lt', last))]
    return models.Q(*bounds)


class Migration(LedgerMigration):

    initial = True

    dependencies = [
        ('billing', '0001_initial'),
    ]

    operations = [
        CreateModels([
            migrations.CreateModel(
                name='Pack',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('code', models.CharField(max_length=64, verbose_name='ref')),
                    ('version', models.PositiveIntegerField()),
                    ('name', models.CharField(max_length=200)),
                    ('names', models.JSONField(db_comment='the name in languages in which it differs, by their codes', default=dict)),
                    ('credit_type', models.CharField(max_length=32)),
                    ('credits', models.BigIntegerField(db_comment='purchased credits, in the smallest unit')),
                    ('bonus', models.BigIntegerField(db_comment='promotional credits beside them', default=0)),
                    ('currency', models.CharField(db_comment='ISO 4217', max_length=3)),
                    ('price_minor', models.BigIntegerField()),
                    ('expires_days', models.PositiveIntegerField(db_comment='days from when the credits are added; null: never', null=True)),
                    ('applies_to', models.JSONField(db_comment='what the credits can pay for, as in a grant; null: everything', null=True)),
                    ('valid_from', models.DateTimeField()),
                    ('valid_until', models.DateTimeField(db_comment='from then on it is not on sale; null: no end', null=True)),
                    ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ],
                options={
                    'db_table': 'billing_pack',
                    'constraints': [models.UniqueConstraint(fields=('code', 'version'), name='billing_pack_code_version'), models.CheckConstraint(condition=models.Q(('bonus__gte', 0), ('credits__gte', 1), ('price_minor__gte', 1)), name='billing_pack_amounts'), models.CheckConstraint(condition=years('valid_from', 'valid_until'), name='billing_pack_years')],
                },
            ),
            migrations.CreateModel(
                name='Purchase',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('provider', models.CharField(db_comment='who took the money; manual: booked by hand', max_length=32)),
                    ('payment', models.CharField(db_comment="the provider's id of the payment", max_length=200)),
                    ('pack', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing_payments.pack')),
                    ('quantity', models.PositiveIntegerField(db_comment='how many packs', db_default=1, default=1)),
                    ('holder_id', models.CharField(max_length=64)),
                    ('customer', models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing.customer')),
                    ('credit_type', models.CharField(max_length=32)),
                    ('credits', models.BigIntegerField()),
                    ('bonus', models.BigIntegerField()),
                    ('currency', models.CharField(max_length=3)),
                    ('paid_minor', models.BigIntegerField()),
                    ('paid_at', models.DateTimeField()),
                    ('reference', models.CharField(blank=True, default='', max_length=200)),
                    ('actor', models.CharField(max_length=200)),
                    ('recorded_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ],
                options={
                    'db_table': 'billing_purchase',
                    'permissions': [('return_purchase', 'Can record a return of money')],
                    'indexes': [models.Index(fields=['holder_id', '-id'], name='billing_purchase_holder'), models.Index(condition=models.Q(('customer__isnull', False)), fields=['customer', '-id'], name='billing_purchase_customer')],
                    'constraints': [models.UniqueConstraint(fields=('payment', 'provider'), name='billing_purchase_payment'), models.CheckConstraint(condition=models.Q(('bonus__gte', 0), ('credits__gte', 1), ('paid_minor__gte', 1)), name='billing_purchase_amounts'), models.CheckConstraint(condition=years('paid_at'), name='billing_purchase_years')],
                },
            ),
            migrations.CreateModel(
                name='PurchaseGrant',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('purchase', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing_payments.purchase')),
                    ('credits', models.BigIntegerField()),
                    ('bonus', models.BigIntegerField()),
                    ('entries', models.JSONField(db_comment='the grants: source, sequence and amount of each')),
                    ('recorded_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ],
                options={
                    'db_table': 'billing_purchasegrant',
                    'constraints': [models.UniqueConstraint(fields=('purchase',), name='billing_purchasegrant_once')],
                },
            ),
            migrations.CreateModel(
                name='PurchaseReturn',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('purchase', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing_payments.purchase')),
                    ('kind', models.CharField(choices=[('refund', 'Refund'), ('dispute', 'Dispute'), ('reinstated', 'Reinstated')], max_length=16)),
                    ('payment', models.CharField(db_comment="the provider's id of the refund or dispute", max_length=200)),
                    ('amount_minor', models.BigIntegerField(db_comment='of the money of the purchase')),
                    ('loss_minor', models.BigIntegerField(db_comment="what a dispute took beyond the rest of the purchase's money", db_default=0, default=0)),
                    ('returned_at', models.DateTimeField()),
                    ('reason', models.CharField(blank=True, default='', max_length=500)),
                    ('actor', models.CharField(max_length=200)),
                    ('recorded_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ],
                options={
                    'db_table': 'billing_purchasereturn',
                    'constraints': [models.UniqueConstraint(fields=('purchase', 'kind', 'payment'), name='billing_purchasereturn_payment'), models.CheckConstraint(condition=models.Q(models.Q(('amount_minor__gte', 1), ('loss_minor__gte', 0)), models.Q(('amount_minor', 0), ('loss_minor__gte', 1), models.Q(('kind', 'refund'), _negated=True)), _connector='OR'), name='billing_purchasereturn_amount'), models.CheckConstraint(condition=models.Q(('loss_minor', 0), models.Q(('kind', 'refund'), _negated=True), _connector='OR'), name='billing_purchasereturn_loss'), models.CheckConstraint(condition=years('returned_at'), name='billing_purchasereturn_years')],
                },
            ),
            migrations.CreateModel(
                name='ReturnSettlement',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('purchase_return', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing_payments.purchasereturn')),
                    ('purchase', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing_payments.purchase')),
                    ('share_credits', models.BigIntegerField(db_comment='purchased credits that the returned money had bought')),
                    ('share_bonus', models.BigIntegerField(db_comment='promotional credits that came with them')),
                    ('taken_credits', models.BigIntegerField(db_comment='of these, what was revoked, or had not been added yet')),
                    ('taken_bonus', models.BigIntegerField()),
                    ('claim_minor', models.BigIntegerField(db_comment='the money for credits that were gone already')),
                    ('entries', models.JSONField(db_comment='revocations or grants: source, sequence and amount of each')),
                    ('recorded_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ],
                options={
                    'db_table': 'billing_returnsettlement',
                    'indexes': [models.Index(fields=['purchase', 'id'], name='billing_settlement_purchase')],
                    'constraints': [models.UniqueConstraint(fields=('purchase_return',), name='billing_returnsettlement_once')],
                },
            ),
            migrations.CreateModel(
                name='DuePurchase',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('purchase', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing_payments.purchase')),
                    ('since', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                    ('due_at', models.DateTimeField(db_comment='when it is tried next', db_default=django.db.models.functions.datetime.Now())),
                    ('tries', models.PositiveIntegerField(default=0)),
                    ('error', models.CharField(blank=True, db_comment='why the last try failed', default='', max_length=500)),
                ],
                options={
                    'db_table': 'billing_duepurchase',
                    'indexes': [models.Index(fields=['due_at', 'id'], name='billing_duepurchase_due')],
                    'constraints': [models.UniqueConstraint(fields=('purchase',), name='billing_duepurchase_once')],
                    'default_permissions': (),
                },
            ),
            migrations.CreateModel(
                name='TopUp',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('holder_id', models.CharField(max_length=64)),
                    ('credit_type', models.CharField(max_length=32)),
                    ('threshold', models.BigIntegerField(db_comment='topped up when fewer credits are available')),
                    ('pack_ref', models.CharField(db_comment='billing_pack.code; the version on sale then is bought', max_length=64)),
                    ('packs', models.PositiveIntegerField(db_comment='bought each time; null: as many as up_to takes', null=True)),
                    ('up_to', models.BigIntegerField(null=True)),
                    ('customer', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing.customer')),
                    ('provider', models.CharField(max_length=32)),
                    ('method', models.CharField(db_comment="the saved method, by the provider's id", max_length=200)),
                    ('cap_minor', models.BigIntegerField(db_comment='the most that is charged in a period; null: no limit', null=True)),
                    ('cap_period', models.CharField(db_comment='day, week or month, in UTC', max_length=8)),
                    ('cooldown_seconds', models.PositiveIntegerField(db_comment='between the beginnings of two payments')),
                    ('declines', models.PositiveIntegerField(db_comment='the number of declines in a row after which it is paused')),
                    ('actor', models.CharField(max_length=200)),
                    ('recorded_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                    ('paused_at', models.DateTimeField(null=True)),
                    ('resumed_at', models.DateTimeField(db_comment='declines before do not count', null=True)),
                    ('ended_at', models.DateTimeField(null=True)),
                ],
                options={
                    'db_table': 'billing_topup',
                    'verbose_name': 'top-up',
                    'constraints': [models.UniqueConstraint(condition=models.Q(('ended_at', None)), fields=('holder_id', 'credit_type'), name='billing_topup_account'), models.CheckConstraint(condition=models.Q(('threshold__gte', 1), models.Q(models.Q(('packs__gte', 1), ('up_to', None)), models.Q(('packs', None), ('up_to__gte', models.F('threshold'))), _connector='OR'), ('declines__gte', 1)), name='billing_topup_terms')],
                },
            ),
            migrations.CreateModel(
                name='PaymentIntent',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('key', models.CharField(db_comment='our name for it with the provider', max_length=64, unique=True)),
                    ('provider', models.CharField(max_length=32)),
                    ('pack', models.ForeignKey(db_constraint=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing_payments.pack')),
                    ('quantity', models.PositiveIntegerField(db_comment='how many packs', db_default=1, default=1)),
                    ('holder_id', models.CharField(max_length=64, null=True)),
                    ('top_up', models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing_payments.topup')),
                    ('invoice_id', models.BigIntegerField(null=True)),
                    ('customer', models.ForeignKey(db_constraint=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing.customer')),
                    ('currency', models.CharField(max_length=3)),
                    ('amount_minor', models.BigIntegerField()),
                    ('method', models.CharField(blank=True, db_comment='the saved method; empty: a checkout', default='', max_length=200)),
                    ('customer_present', models.BooleanField(default=False)),
                    ('saves_method', models.BooleanField(default=False)),
                    ('return_url', models.CharField(blank=True, default='', max_length=2000)),
                    ('reference', models.CharField(blank=True, default='', max_length=200)),
                    ('actor', models.CharField(max_length=200)),
                    ('recorded_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                    ('state', models.CharField(db_comment='requested, waiting, processing, succeeded, failed or canceled', default='requested', max_length=16)),
                    ('checkout', models.CharField(blank=True, db_comment="the provider's id of the checkout", default='', max_length=200)),
                    ('payment', models.CharField(blank=True, db_comment="the provider's id of the payment", default='', max_length=200)),
                    ('url', models.CharField(blank=True, db_comment='where the customer pays or confirms', default='', max_length=2000)),
                    ('error', models.CharField(blank=True, default='', max_length=500)),
                    ('is_canceled', models.BooleanField(db_comment='the provider is asked to give it up', default=False)),
                    ('returned_minor', models.BigIntegerField(default=0)),
                    ('settled_at', models.DateTimeField(null=True)),
                    ('due_at', models.DateTimeField(db_comment='when the provider is asked next; null: nothing is open', null=True)),
                    ('asked_at', models.DateTimeField(db_comment='when the provider was asked last', null=True)),
                    ('tries', models.PositiveIntegerField(default=0)),
                ],
                options={
                    'db_table': 'billing_paymentintent',
                    'permissions': [('refund_paymentintent', 'Can have a provider send money back')],
                    'indexes': [models.Index(condition=models.Q(('due_at__isnull', False)), fields=['due_at', 'id'], name='billing_paymentintent_due'), models.Index(condition=models.Q(('checkout', ''), _negated=True), fields=['provider', 'checkout'], name='billing_paymentintent_checkout'), models.Index(condition=models.Q(('invoice_id__isnull', False)), fields=['invoice_id', '-id'], name='billing_paymentintent_invoice'), models.Index(condition=models.Q(('holder_id__isnull', False)), fields=['holder_id', '-id'], name='billing_paymentintent_holder'), models.Index(condition=models.Q(('top_up__isnull', False)), fields=['top_up', '-id'], name='billing_paymentintent_topup')],
                    'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('holder_id__isnull', False), ('invoice_id__isnull', True), ('pack__isnull', False)), models.Q(('holder_id__isnull', True), ('invoice_id__isnull', False), ('pack__isnull', True)), _connector='OR'), name='billing_paymentintent_target'), models.CheckConstraint(condition=models.Q(('amount_minor__gte', 1), ('returned_minor__gte', 0)), name='billing_paymentintent_amounts'), models.UniqueConstraint(condition=models.Q(('state__in', ('requested', 'waiting', 'processing'))), fields=('invoice_id',), name='billing_paymentintent_open'), models.UniqueConstraint(condition=models.Q(('state__in', ('requested', 'waiting', 'processing'))), fields=('top_up',), name='billing_paymentintent_of_top_up'), models.UniqueConstraint(condition=models.Q(('payment', ''), _negated=True), fields=('provider', 'payment'), name='billing_paymentintent_payment')],
                },
            ),
            migrations.CreateModel(
                name='ProviderRefund',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('key', models.CharField(db_comment='our name for it with the provider', max_length=64, unique=True)),
                    ('intent', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing_payments.paymentintent')),
                    ('amount_minor', models.BigIntegerField()),
                    ('reason', models.CharField(blank=True, default='', max_length=500)),
                    ('actor', models.CharField(max_length=200)),
                    ('recorded_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                    ('state', models.CharField(db_comment='requested, processing, succeeded or failed', default='requested', max_length=16)),
                    ('refund', models.CharField(blank=True, db_comment="the provider's id of the refund", default='', max_length=200)),
                    ('error', models.CharField(blank=True, default='', max_length=500)),
                    ('due_at', models.DateTimeField(db_comment='when the provider is asked next; null: nothing is open', null=True)),
                    ('asked_at', models.DateTimeField(db_comment='when the provider was asked last', null=True)),
                    ('tries', models.PositiveIntegerField(default=0)),
                ],
                options={
                    'db_table': 'billing_providerrefund',
                    'indexes': [models.Index(condition=models.Q(('due_at__isnull', False)), fields=['due_at', 'id'], name='billing_providerrefund_due')],
                    'constraints': [models.CheckConstraint(condition=models.Q(('amount_minor__gte', 1)), name='billing_providerrefund_amount')],
                    'default_permissions': (),
                },
            ),
            migrations.CreateModel(
                name='ProviderEvent',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('provider', models.CharField(max_length=32)),
                    ('event', models.CharField(db_comment="the provider's id of the event", max_length=200)),
                    ('type', models.CharField(max_length=100)),
                    ('key', models.CharField(blank=True, default='', max_length=64)),
                    ('checkout', models.CharField(blank=True, default='', max_length=200)),
                    ('payment', models.CharField(blank=True, default='', max_length=200)),
                    ('received_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                    ('handled_at', models.DateTimeField(null=True)),
                    ('intent_id', models.BigIntegerField(db_comment='billing_paymentintent.id; null: the event is about none of ours', null=True)),
                    ('due_at', models.DateTimeField(db_comment='when it is handled next; null: it was', db_default=django.db.models.functions.datetime.Now(), null=True)),
                    ('asked_at', models.DateTimeField(db_comment='when it was handled last', null=True)),
                    ('tries', models.PositiveIntegerField(default=0)),
                    ('error', models.CharField(blank=True, default='', max_length=500)),
                ],
                options={
                    'db_table': 'billing_providerevent',
                    'indexes': [models.Index(condition=models.Q(('due_at__isnull', False)), fields=['due_at', 'id'], name='billing_providerevent_due'), models.Index(condition=models.Q(('intent_id__isnull', False)), fields=['intent_id', '-id'], name='billing_providerevent_intent')],
                    'constraints': [models.UniqueConstraint(fields=('provider', 'event'), name='billing_providerevent_once')],
                    'default_permissions': (),
                },
            ),
            migrations.CreateModel(
                name='ProviderCustomer',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('provider', models.CharField(max_length=32)),
                    ('customer', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing.customer')),
                    ('provider_id', models.CharField(max_length=200)),
                    ('recorded_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ],
                options={
                    'db_table': 'billing_providercustomer',
                    'constraints': [models.UniqueConstraint(fields=('customer', 'provider'), name='billing_providercustomer_once')],
                    'default_permissions': (),
                },
            ),
        ]),
        migrations.RunSQL((Path(__file__).parent / 'schema.sql').read_text(encoding='utf-8')),
    ]
