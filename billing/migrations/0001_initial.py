"""Billing's tables as billing/models has them, then what models cannot say as schema.sql has it."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.datetime
from django.db import migrations, models

from ledger.database.schema_versions import CreateModels, RecordSchema


def years(*columns):
    """These times lie in the years 2000 to 2200; null passes."""
    first, last = datetime(2000, 1, 1, tzinfo=UTC), datetime(2201, 1, 1, tzinfo=UTC)
    bounds = [(f'{column}__{bound}', value) for column in columns for bound, value in (('gte', first), ('lt', last))]
    return models.Q(*bounds)


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('ledger', '0001_initial'),
    ]

    operations = [
        CreateModels([
            migrations.CreateModel(
                name='Customer',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('ref', models.CharField(max_length=64, unique=True)),
                    ('name', models.CharField(max_length=200)),
                    ('currency', models.CharField(db_comment='ISO 4217', max_length=3)),
                    ('time_zone', models.CharField(default='UTC', max_length=64)),
                    ('language', models.CharField(db_comment='BCP 47', default='en', max_length=16)),
                    ('address', models.JSONField(default=dict)),
                    ('vat_id', models.CharField(blank=True, default='', max_length=32)),
                    ('vat_status', models.CharField(db_comment='taxable, reverse_charge or exempt', default='taxable', max_length=16)),
                    ('terms_days', models.PositiveIntegerField(db_comment='days from issue to due date', default=30)),
                    ('grace_days', models.PositiveIntegerField(db_comment='days for which an invoice stays a draft that is rated again', default=0)),
                    ('seller', models.CharField(db_comment='billing_seller.ref', db_default='default', default='default', max_length=64)),
                    ('holder_id', models.CharField(blank=True, db_comment="whose credits pay; empty: nobody's", default='', max_length=64)),
                    ('credit_type', models.CharField(blank=True, default='', max_length=32)),
                    ('credit_unit_value', models.DecimalField(db_comment='money in major units that one credit pays', decimal_places=12, max_digits=38, null=True)),
                    ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ],
                options={
                    'permissions': [('erase_customer', "Can erase a customer's personal data")],
                    'indexes': [models.Index(condition=models.Q(('holder_id', ''), _negated=True), fields=['holder_id'], name='billing_customer_holder')],
                },
            ),
            migrations.CreateModel(
                name='Plan',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('code', models.CharField(max_length=64, verbose_name='ref')),
                    ('version', models.PositiveIntegerField()),
                    ('name', models.CharField(max_length=200)),
                    ('names', models.JSONField(db_comment='the name in languages in which it differs, by their codes', default=dict)),
                    ('currency', models.CharField(db_comment='ISO 4217', max_length=3)),
                    ('interval_unit', models.CharField(db_comment='day, week, month, quarter, half_year or year', max_length=10)),
                    ('interval_count', models.PositiveIntegerField()),
                    ('minimum', models.DecimalField(db_comment='least per period, major units, before tax', decimal_places=12, max_digits=38, null=True)),
                    ('maximum', models.DecimalField(db_comment='most per period, major units, before tax', decimal_places=12, max_digits=38, null=True)),
                    ('allowance', models.JSONField(db_comment='credits granted each period: credit_type, amount, rollover_cap', null=True)),
                    ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ],
                options={
                    'constraints': [models.UniqueConstraint(fields=('code', 'version'), name='billing_plan_code_version')],
                },
            ),
            migrations.CreateModel(
                name='Price',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('plan', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing.plan')),
                    ('position', models.PositiveIntegerField()),
                    ('key', models.CharField(max_length=64)),
                    ('kind', models.CharField(db_comment='recurring or usage', max_length=10)),
                    ('timing', models.CharField(db_comment='advance or arrears', max_length=10)),
                    ('model', models.CharField(max_length=24)),
                    ('meter', models.CharField(blank=True, default='', max_length=64)),
                    ('definition', models.JSONField(db_comment='the whole price, as the API takes and gives it')),
                    ('digest', models.BinaryField(db_comment="SHA-256 over the plan's row and this one: docs/explanation/billing.md", editable=False, null=True)),
                ],
                options={
                    'constraints': [models.UniqueConstraint(fields=('plan', 'key'), name='billing_price_plan_key')],
                },
            ),
            migrations.CreateModel(
                name='Subscription',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('ref', models.CharField(max_length=64, unique=True)),
                    ('customer', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing.customer')),
                    ('started_at', models.DateTimeField()),
                    ('anchor_at', models.DateTimeField(db_comment='boundary n is anchor + n intervals, in time_zone')),
                    ('time_zone', models.CharField(max_length=64)),
                    ('trial_end', models.DateTimeField(db_comment='recurring charges begin here', null=True)),
                    ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ],
                options={
                    'constraints': [models.CheckConstraint(condition=years('started_at', 'anchor_at', 'trial_end'), name='billing_subscription_years')],
                },
            ),
            migrations.CreateModel(
                name='Item',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('subscription', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing.subscription')),
                    ('price_key', models.CharField(blank=True, max_length=64)),
                ],
                options={
                    'constraints': [models.UniqueConstraint(fields=('subscription', 'price_key'), name='billing_item_key')],
                },
            ),
            migrations.CreateModel(
                name='ItemVersion',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('subscription', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing.subscription')),
                    ('item', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing.item')),
                    ('plan', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing.plan')),
                    ('price', models.ForeignKey(db_constraint=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing.price')),
                    ('quantity', models.DecimalField(decimal_places=12, max_digits=38)),
                    ('starts_at', models.DateTimeField()),
                    ('ends_at', models.DateTimeField(null=True)),
                    ('is_termination', models.BooleanField(db_comment='it ends because the subscription does, not by a change', default=False)),
                    ('amendment', models.PositiveIntegerField(db_comment='sequence of the amendment that made it', null=True)),
                    ('recorded_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                    ('superseded_at', models.DateTimeField(null=True)),
                ],
                options={
                    'constraints': [models.CheckConstraint(condition=years('starts_at', 'ends_at'), name='billing_itemversion_years')],
                    'indexes': [models.Index(condition=models.Q(('superseded_at__isnull', True)), fields=['subscription'], name='billing_itemversion_current')],
                },
            ),
            migrations.CreateModel(
                name='Amendment',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('subscription', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing.subscription')),
                    ('sequence', models.PositiveIntegerField()),
                    ('effective_at', models.DateTimeField()),
                    ('change', models.JSONField(db_comment='one of plan, quantities, ends_at, paused')),
                    ('actor', models.CharField(blank=True, default='', max_length=128)),
                    ('recorded_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                    ('digest', models.BinaryField(db_comment="SHA-256 over the subscription's amendment before it and this row: docs/explanation/billing.md", editable=False, null=True)),
                ],
                options={
                    'constraints': [models.UniqueConstraint(fields=('subscription', 'sequence'), name='billing_amendment_sequence'), models.CheckConstraint(condition=years('effective_at'), name='billing_amendment_years')],
                },
            ),
            migrations.CreateModel(
                name='Charge',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('subscription', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing.subscription')),
                    ('sequence', models.PositiveIntegerField()),
                    ('currency', models.CharField(max_length=3)),
                    ('amount_minor', models.BigIntegerField()),
                    ('description', models.CharField(max_length=500)),
                    ('tax_category', models.CharField(default='S', max_length=32)),
                    ('tax_rate', models.DecimalField(db_comment='percent', decimal_places=12, default=Decimal(0), max_digits=38)),
                    ('actor', models.CharField(blank=True, default='', max_length=128)),
                    ('recorded_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                    ('digest', models.BinaryField(db_comment="SHA-256 over the subscription's charge before it and this row: docs/explanation/billing.md", editable=False, null=True)),
                ],
                options={
                    'constraints': [models.UniqueConstraint(fields=('subscription', 'sequence'), name='billing_charge_sequence')],
                },
            ),
            migrations.CreateModel(
                name='Coupon',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('code', models.CharField(max_length=64, unique=True, verbose_name='ref')),
                    ('name', models.CharField(blank=True, db_comment='as documents print it; empty: the code in words', default='', max_length=200)),
                    ('names', models.JSONField(db_comment='the name in languages in which it differs, by their codes', default=dict)),
                    ('kind', models.CharField(db_comment='amount or percentage', max_length=10)),
                    ('value', models.DecimalField(db_comment='major units, or percent', decimal_places=12, max_digits=38)),
                    ('currency', models.CharField(blank=True, default='', max_length=3)),
                    ('duration', models.CharField(db_comment='once, recurring or forever', max_length=10)),
                    ('periods', models.PositiveIntegerField(db_comment='how many periods a recurring one lasts', null=True)),
                    ('per', models.CharField(blank=True, db_comment='whose periods a recurring one counts: subscription or customer', default='', max_length=12)),
                    ('prices', models.JSONField(db_comment='price keys that it is limited to; empty: all', default=list)),
                    ('plans', models.JSONField(db_comment='plan codes that it is limited to; empty: all', default=list)),
                    ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                    ('digest', models.BinaryField(db_comment='SHA-256 over this row: docs/explanation/billing.md', editable=False, null=True)),
                ],
            ),
            migrations.CreateModel(
                name='CustomerCoupon',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('customer', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing.customer')),
                    ('coupon', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing.coupon')),
                    ('given_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                    ('taken_off_at', models.DateTimeField(db_comment='from then on no invoice uses it; null: it may be used', null=True)),
                ],
                options={
                    'constraints': [models.UniqueConstraint(fields=('customer', 'coupon'), name='billing_customercoupon_once')],
                },
            ),
            migrations.CreateModel(
                name='UsageKey',
                fields=[
                    ('idempotency_key', models.CharField(max_length=255, primary_key=True, serialize=False)),
                    ('content_digest', models.BinaryField(db_comment="SHA-256 of the event's canonical form: the same key with other content")),
                    ('subscription', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing.subscription')),
                    ('occurred_at', models.DateTimeField(db_comment='with the subscription: where the event is found by its key')),
                    ('recorded_at', models.DateTimeField(db_comment='that of the event: whether it came late', db_default=django.db.models.functions.datetime.Now())),
                ],
            ),
            migrations.CreateModel(
                name='UsageEvent',
                fields=[
                    ('pk', models.CompositePrimaryKey('subscription_id', 'meter', 'occurred_at', 'idempotency_key', blank=True, editable=False, primary_key=True, serialize=False)),
                    ('subscription', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing.subscription')),
                    ('meter', models.CharField(max_length=64)),
                    ('occurred_at', models.DateTimeField()),
                    ('idempotency_key', models.CharField(max_length=255)),
                    ('value', models.DecimalField(decimal_places=12, max_digits=38)),
                    ('properties', models.JSONField(default=dict)),
                    ('recorded_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ],
                options={
                    'db_table': 'billing_usageevent',
                    'managed': False,
                },
            ),
            migrations.CreateModel(
                name='DroppedMonth',
                fields=[
                    ('month', models.DateField(db_comment='its first day', primary_key=True, serialize=False)),
                    ('events', models.BigIntegerField()),
                    ('keys_digest', models.BinaryField(db_comment="SHA-256 over the month's keys that have no event any more", null=True)),
                    ('dropped_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ],
            ),
            migrations.CreateModel(
                name='Claim',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('subscription', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing.subscription')),
                    ('item_id', models.BigIntegerField(db_comment='billing_item.id; for a one-off charge billing_charge.id')),
                    ('kind', models.SmallIntegerField(choices=[(1, 'Recurring'), (2, 'Usage'), (3, 'Charge'), (4, 'Bound'), (5, 'Allowance')])),
                    ('starts_at', models.DateTimeField()),
                    ('ends_at', models.DateTimeField()),
                    ('price', models.ForeignKey(db_constraint=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing.price')),
                    ('quantity', models.DecimalField(db_comment='billed, after aggregation', decimal_places=12, max_digits=38)),
                    ('amount_minor', models.BigIntegerField(db_comment='billed for this period so far, net of line discounts')),
                    ('invoice_id', models.BigIntegerField(db_comment='null: nothing was used and nothing is owed, so there is no line', null=True)),
                    ('line_position', models.PositiveIntegerField(db_comment='the line that it comes from', null=True)),
                    ('snapshot', models.JSONField(db_comment='what a correction needs to know: shares of the period, or the usage rated', default=dict)),
                    ('created_at', models.DateTimeField(db_comment='when it was written; of a restored claim, when it was first', db_default=django.db.models.functions.datetime.Now())),
                    ('measure_again', models.CharField(blank=True, choices=[('restored', 'Restored'), ('left-out', 'Left Out')], db_comment='why the next run compares its usage with the events', db_default='', default='', max_length=8)),
                    ('released_at', models.DateTimeField(null=True)),
                    ('made_by', models.BigIntegerField(db_comment='the invoice that wrote the row; not that of the line on what is left', null=True)),
                    ('released_by', models.BigIntegerField(db_comment='the invoice that corrected or voided it', null=True)),
                    ('restores', models.BigIntegerField(db_comment='the released claim that counts again with this one', null=True)),
                ],
                options={
                    'indexes': [models.Index(condition=models.Q(('released_at', None)), fields=['subscription', 'ends_at'], name='billing_claim_held'), models.Index(condition=models.Q(('released_at', None), models.Q(('measure_again', ''), _negated=True)), fields=['subscription'], name='billing_claim_measure_again'), models.Index(fields=['invoice_id'], name='billing_claim_invoice'), models.Index(fields=['made_by'], name='billing_claim_made_by'), models.Index(condition=models.Q(('released_by__isnull', False)), fields=['released_by'], name='billing_claim_released_by')],
                },
            ),
            migrations.CreateModel(
                name='Cursor',
                fields=[
                    ('subscription', models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, primary_key=True, related_name='+', serialize=False, to='billing.subscription')),
                    ('recurring_due_at', models.DateTimeField(db_comment='null: nothing will be due until an amendment', null=True)),
                    ('usage_due_at', models.DateTimeField(db_comment='null: nothing will be due until an amendment or late usage', null=True)),
                    ('recurring_amendments_seen', models.PositiveIntegerField(default=0)),
                    ('usage_amendments_seen', models.PositiveIntegerField(default=0)),
                    ('charges_seen', models.PositiveIntegerField(default=0)),
                    ('claims_from', models.DateTimeField(db_comment='claims that end before are settled; null: look at all', null=True)),
                    ('usage_seen_until', models.DateTimeField(db_comment='usage recorded before was compared with the claims; null: look at all', null=True)),
                    ('looked_at', models.DateTimeField()),
                ],
            ),
            migrations.CreateModel(
                name='SuspendedBilling',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('subscription', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing.subscription')),
                    ('reason', models.CharField(max_length=64)),
                    ('facts', models.JSONField(default=dict)),
                    ('suspended_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                    ('run_id', models.UUIDField(null=True)),
                    ('resumed_at', models.DateTimeField(null=True)),
                    ('resumed_by', models.CharField(blank=True, default='', max_length=128)),
                    ('resume_reason', models.CharField(blank=True, default='', max_length=500)),
                ],
                options={
                    'constraints': [models.UniqueConstraint(condition=models.Q(('resumed_at__isnull', True)), fields=('subscription',), name='billing_suspendedbilling_one')],
                },
            ),
            migrations.CreateModel(
                name='NumberSeries',
                fields=[
                    ('name', models.CharField(max_length=96, primary_key=True, serialize=False)),
                    ('last_value', models.BigIntegerField(default=0)),
                ],
            ),
            migrations.CreateModel(
                name='Seller',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('ref', models.CharField(db_default='default', default='default', max_length=64)),
                    ('details', models.JSONField(db_comment='name, address, VAT id, bank account …: billing/documents/sellers.py')),
                    ('recorded_by', models.CharField(max_length=200)),
                    ('recorded_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                    ('digest', models.BinaryField(db_comment='SHA-256 over this row: docs/explanation/billing.md', editable=False, null=True)),
                ],
                options={
                    'default_permissions': ('add', 'view'),
                    'indexes': [models.Index(fields=['ref', '-id'], name='billing_seller_ref')],
                },
            ),
            migrations.CreateModel(
                name='Invoice',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('series', models.CharField(default='INV', max_length=96)),
                    ('series_value', models.BigIntegerField(null=True)),
                    ('number', models.CharField(max_length=120, null=True, unique=True)),
                    ('subscription', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing.subscription')),
                    ('subscription_ref', models.CharField(max_length=64)),
                    ('customer', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing.customer')),
                    ('customer_ref', models.CharField(max_length=64)),
                    ('buyer', models.JSONField(db_comment='name, address, VAT id and language as they were', default=dict)),
                    ('seller_id', models.BigIntegerField(db_comment='billing_seller.id when it was finalised; null: none was recorded', null=True)),
                    ('credit_units', models.JSONField(db_comment='unit and decimals of each credit type on it, as they were when it was finalised; null: a draft', null=True)),
                    ('currency', models.CharField(max_length=3)),
                    ('note', models.CharField(blank=True, db_comment='a text for this document', db_default='', default='', max_length=1000)),
                    ('state', models.CharField(choices=[('draft', 'Draft'), ('open', 'Open'), ('paid', 'Paid'), ('void', 'Void'), ('uncollectible', 'Uncollectible')], default='draft', max_length=16)),
                    ('scope', models.CharField(blank=True, db_comment='usage or recurring when only that was billed', default='', max_length=10)),
                    ('as_of', models.DateTimeField(db_comment='up to when it bills')),
                    ('issue_date', models.DateField(null=True)),
                    ('due_date', models.DateField(null=True)),
                    ('subtotal_minor', models.BigIntegerField()),
                    ('discount_minor', models.BigIntegerField(default=0)),
                    ('tax_minor', models.BigIntegerField()),
                    ('total_minor', models.BigIntegerField()),
                    ('credit_notes_minor', models.BigIntegerField(default=0)),
                    ('credits_applied_minor', models.BigIntegerField(default=0)),
                    ('amount_due_minor', models.BigIntegerField()),
                    ('amendments_seen', models.PositiveIntegerField(db_comment="the last of the subscription's amendments that it bills", default=0)),
                    ('run_id', models.UUIDField(null=True)),
                    ('grace_ends_at', models.DateTimeField(db_comment='until when the draft is rated again; null: it has no grace', null=True)),
                    ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                    ('finalized_at', models.DateTimeField(null=True)),
                    ('paid_at', models.DateTimeField(null=True)),
                    ('voided_at', models.DateTimeField(null=True)),
                    ('uncollectible_at', models.DateTimeField(null=True)),
                    ('digest', models.BinaryField(db_comment='SHA-256, chained within the series: docs/explanation/billing.md', null=True)),
                ],
                options={
                    'permissions': [('finalize_invoice', 'Can finalise a draft'), ('pay_invoice', 'Can mark an invoice as paid'), ('void_invoice', 'Can void an invoice'), ('mark_invoice_uncollectible', 'Can mark an invoice as uncollectible'), ('delete_draft', 'Can delete a draft'), ('credit_invoice', 'Can credit an invoice')],
                    'indexes': [models.Index(fields=['subscription', '-id'], name='billing_invoice_subscription'), models.Index(fields=['customer', '-id'], name='billing_invoice_customer'), models.Index(fields=['state', '-id'], name='billing_invoice_state'), models.Index(condition=models.Q(('issue_date__isnull', False)), fields=['issue_date', 'id'], name='billing_invoice_issued'), models.Index(condition=models.Q(('amount_due_minor__gt', 0), ('state', 'open')), fields=['due_date', 'id'], name='billing_invoice_due'), models.Index(condition=models.Q(('grace_ends_at__isnull', False), ('state', 'draft')), fields=['subscription', 'grace_ends_at'], name='billing_invoice_in_grace')],
                    'constraints': [models.UniqueConstraint(fields=('series', 'series_value'), name='billing_invoice_series'), models.CheckConstraint(condition=models.Q(models.Q(('digest', None), ('number', None), ('series_value', None), ('state', 'draft')), models.Q(models.Q(('state', 'draft'), _negated=True), ('digest__isnull', False), ('number__isnull', False), ('series_value__isnull', False)), _connector='OR'), name='billing_invoice_numbered'), models.CheckConstraint(condition=models.Q(('total_minor', django.db.models.expressions.CombinedExpression(django.db.models.expressions.CombinedExpression(models.F('subtotal_minor'), '-', models.F('discount_minor')), '+', models.F('tax_minor'))), ('amount_due_minor', django.db.models.expressions.CombinedExpression(django.db.models.expressions.CombinedExpression(models.F('total_minor'), '-', models.F('credit_notes_minor')), '-', models.F('credits_applied_minor'))), ('amount_due_minor__gte', 0), ('credits_applied_minor__gte', 0), ('total_minor__gte', 0)), name='billing_invoice_adds_up'), models.CheckConstraint(condition=years('as_of'), name='billing_invoice_years')],
                },
            ),
            migrations.CreateModel(
                name='Transition',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('subscription', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing.subscription')),
                    ('sequence', models.PositiveIntegerField()),
                    ('invoice_id', models.BigIntegerField()),
                    ('kind', models.CharField(db_comment='finalize, pay, void, mark_uncollectible or delete', max_length=20)),
                    ('actor', models.CharField(max_length=200)),
                    ('reason', models.CharField(max_length=500)),
                    ('draft', models.JSONField(db_comment='what the draft was that was deleted; null for every other transition', null=True)),
                    ('recorded_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                    ('digest', models.BinaryField(db_comment="SHA-256 over the subscription's transition before it and this row: docs/explanation/billing.md", editable=False, null=True)),
                ],
                options={
                    'default_permissions': (),
                    'indexes': [models.Index(fields=['invoice_id', 'id'], name='billing_transition_invoice')],
                    'constraints': [models.UniqueConstraint(fields=('subscription', 'sequence'), name='billing_transition_sequence')],
                },
            ),
            migrations.CreateModel(
                name='Line',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('invoice', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='lines', to='billing.invoice')),
                    ('position', models.PositiveIntegerField()),
                    ('kind', models.CharField(db_comment='recurring, usage, late_usage, credit, charge, minimum or carried', max_length=20)),
                    ('item_id', models.BigIntegerField(null=True)),
                    ('price', models.ForeignKey(db_constraint=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing.price')),
                    ('price_key', models.CharField(blank=True, default='', max_length=64)),
                    ('description', models.CharField(max_length=500)),
                    ('starts_at', models.DateTimeField(null=True)),
                    ('ends_at', models.DateTimeField(null=True)),
                    ('quantity', models.DecimalField(decimal_places=12, max_digits=38)),
                    ('unit_amount', models.DecimalField(decimal_places=12, max_digits=38, null=True)),
                    ('amount_minor', models.BigIntegerField(db_comment='before discounts and tax; negative on a credit')),
                    ('discount_minor', models.BigIntegerField(db_comment='its share of the discounts', default=0)),
                    ('tax_category', models.CharField(default='S', max_length=32)),
                    ('tax_rate', models.DecimalField(db_comment='percent', decimal_places=12, default=Decimal(0), max_digits=38)),
                    ('rating', models.JSONField(db_comment='how the amount came about', default=dict)),
                ],
                options={
                    'constraints': [models.UniqueConstraint(fields=('invoice', 'position'), name='billing_line_position')],
                },
            ),
            migrations.CreateModel(
                name='InvoiceTax',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('invoice', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='taxes', to='billing.invoice')),
                    ('category', models.CharField(max_length=32)),
                    ('rate', models.DecimalField(db_comment='percent', decimal_places=12, max_digits=38)),
                    ('base_minor', models.BigIntegerField()),
                    ('amount_minor', models.BigIntegerField()),
                ],
                options={
                    'constraints': [models.UniqueConstraint(fields=('invoice', 'category', 'rate'), name='billing_invoicetax_category')],
                },
            ),
            migrations.CreateModel(
                name='CouponUse',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('customer_coupon', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing.customercoupon')),
                    ('invoice_id', models.BigIntegerField()),
                    ('amount_minor', models.BigIntegerField()),
                    ('periods', models.JSONField(db_comment='of a recurring one: start of each period, what it took off, what credits made free again', default=list)),
                    ('counted_from', models.DateTimeField(db_comment='start of the first period that counts for the subscription', null=True)),
                    ('counted_until', models.DateTimeField(db_comment='end of the last', null=True)),
                    ('currency', models.CharField(max_length=3)),
                    ('used_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                    ('released_at', models.DateTimeField(null=True)),
                ],
                options={
                    'indexes': [models.Index(fields=['invoice_id'], name='billing_couponuse_invoice')],
                    'constraints': [models.UniqueConstraint(condition=models.Q(('released_at', None)), fields=('customer_coupon', 'invoice_id'), name='billing_couponuse_once')],
                },
            ),
            migrations.CreateModel(
                name='CreditNote',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('kind', models.CharField(choices=[('carried', 'Carried'), ('requested', 'Requested')], db_default='carried', default='carried', max_length=10)),
                    ('series', models.CharField(blank=True, db_default='', default='', max_length=96)),
                    ('series_value', models.BigIntegerField(null=True)),
                    ('number', models.CharField(max_length=120, null=True, unique=True)),
                    ('subscription', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='billing.subscription')),
                    ('invoice_id', models.BigIntegerField(db_comment='the invoice that it arose on, or corrects')),
                    ('currency', models.CharField(max_length=3)),
                    ('issue_date', models.DateField(null=True)),
                    ('seller_id', models.BigIntegerField(db_comment='billing_seller.id when it was issued; null: none was recorded', null=True)),
                    ('subtotal_minor', models.BigIntegerField(db_comment='before tax; null on a carried one', null=True)),
                    ('tax_minor', models.BigIntegerField(null=True)),
                    ('amount_minor', models.BigIntegerField(db_comment='with tax; what is left follows from its uses and credits_returned_minor')),
                    ('credits_returned', models.BigIntegerField(db_comment='prepaid credits that went back to the holder', db_default=0, default=0)),
                    ('credits_returned_minor', models.BigIntegerField(db_comment='the part of the payment that they were', db_default=0, default=0)),
                    ('refund_sequence', models.BigIntegerField(db_comment="the ledger's entry of it", null=True)),
                    ('reason', models.CharField(blank=True, db_default='', default='', max_length=500)),
                    ('actor', models.CharField(blank=True, db_default='', default='', max_length=200)),
                    ('recorded_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                    ('released_at', models.DateTimeField(db_comment='when its invoice was voided, and it with it', null=True)),
                    ('digest', models.BinaryField(db_comment='SHA-256, chained within the series: docs/explanation/billing.md', null=True)),
                ],
                options={
                    'indexes': [models.Index(fields=['subscription', '-id'], name='billing_creditnote_list'), models.Index(condition=models.Q(('released_at', None)), fields=['subscription'], name='billing_creditnote_held'), models.Index(fields=['invoice_id'], name='billing_creditnote_invoice')],
                    'constraints': [models.UniqueConstraint(fields=('series', 'series_value'), name='billing_creditnote_series'), models.CheckConstraint(condition=models.Q(models.Q(('credits_returned_minor', 0), ('kind', 'carried'), ('number', None), ('series_value', None)), models.Q(('amount_minor', django.db.models.expressions.CombinedExpression(models.F('subtotal_minor'), '+', models.F('tax_minor'))), ('amount_minor__gt', 0), ('kind', 'requested')), _connector='OR'), name='billing_creditnote_figures'), models.CheckConstraint(condition=models.Q(models.Q(('digest', None), ('number', None)), models.Q(('digest__isnull', False), ('number__isnull', False)), _connector='OR'), name='billing_creditnote_numbered')],
                },
            ),
            migrations.CreateModel(
                name='CreditNoteLine',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('credit_note', models.ForeignKey(on_delete=django.db.models.deletion.DO_NOTHING, related_name='lines', to='billing.creditnote')),
                    ('position', models.PositiveIntegerField(db_comment="of the invoice's line")),
                    ('description', models.CharField(max_length=500)),
                    ('amount_minor', models.BigIntegerField(db_comment='after discounts, before tax; negative where a credit is taken back')),
                    ('tax_category', models.CharField(max_length=32)),
                    ('tax_rate', models.DecimalField(db_comment='percent', decimal_places=12, max_digits=38)),
                ],
                options={
                    'constraints': [models.UniqueConstraint(fields=('credit_note', 'position'), name='billing_creditnoteline_position')],
                },
            ),
            migrations.CreateModel(
                name='CreditNoteTax',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('credit_note', models.ForeignKey(on_delete=django.db.models.deletion.DO_NOTHING, related_name='taxes', to='billing.creditnote')),
                    ('category', models.CharField(max_length=32)),
                    ('rate', models.DecimalField(db_comment='percent', decimal_places=12, max_digits=38)),
                    ('base_minor', models.BigIntegerField()),
                    ('amount_minor', models.BigIntegerField()),
                ],
                options={
                    'constraints': [models.UniqueConstraint(fields=('credit_note', 'category', 'rate'), name='billing_creditnotetax_category')],
                },
            ),
            migrations.CreateModel(
                name='CreditNoteUse',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('credit_note', models.ForeignKey(on_delete=django.db.models.deletion.DO_NOTHING, related_name='uses', to='billing.creditnote')),
                    ('invoice_id', models.BigIntegerField()),
                    ('amount_minor', models.BigIntegerField()),
                    ('recorded_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                    ('released_at', models.DateTimeField(null=True)),
                ],
                options={
                    'indexes': [models.Index(fields=['invoice_id'], name='billing_creditnoteuse_invoice')],
                    'constraints': [models.UniqueConstraint(condition=models.Q(('released_at', None)), fields=('credit_note', 'invoice_id'), name='billing_creditnoteuse_once')],
                },
            ),
            migrations.CreateModel(
                name='CreditPayment',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('invoice_id', models.BigIntegerField(unique=True)),
                    ('holder_id', models.CharField(max_length=64)),
                    ('credit_type', models.CharField(max_length=32)),
                    ('credits', models.BigIntegerField()),
                    ('amount_minor', models.BigIntegerField()),
                    ('spend_sequence', models.BigIntegerField()),
                    ('refund_sequence', models.BigIntegerField(null=True)),
                    ('recorded_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ],
            ),
            migrations.CreateModel(
                name='Run',
                fields=[
                    ('run_id', models.UUIDField(primary_key=True, serialize=False)),
                    ('as_of', models.DateTimeField()),
                    ('options', models.JSONField(default=dict)),
                    ('host', models.CharField(blank=True, default='', max_length=255)),
                    ('started_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                    ('finished_at', models.DateTimeField(null=True)),
                    ('exit_code', models.SmallIntegerField(null=True)),
                    ('summary', models.JSONField(default=dict)),
                ],
                options={
                    'indexes': [models.Index(fields=['started_at'], name='billing_run_started')],
                },
            ),
            migrations.CreateModel(
                name='ScheduledTask',
                fields=[
                    ('name', models.CharField(max_length=64, primary_key=True, serialize=False)),
                    ('due_at', models.DateTimeField(db_comment='while it runs: when another worker takes it, should this one not finish')),
                    ('started_at', models.DateTimeField()),
                    ('finished_at', models.DateTimeField(null=True)),
                    ('exit_code', models.SmallIntegerField(null=True)),
                    ('succeeded_at', models.DateTimeField(db_comment='when it last succeeded, whatever came after', null=True)),
                    ('host', models.CharField(blank=True, default='', max_length=255)),
                    ('executions', models.BigIntegerField(db_comment='how often it has ended, in all workers', db_default=0)),
                    ('failures', models.BigIntegerField(db_comment='how often it has failed or was stopped', db_default=0)),
                    ('seconds', models.FloatField(db_comment='how long all executions took together', db_default=0)),
                ],
            ),
            migrations.CreateModel(
                name='RunResult',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('run_id', models.UUIDField()),
                    ('subscription_ref', models.CharField(max_length=64)),
                    ('outcome', models.CharField(max_length=16)),
                    ('detail', models.CharField(blank=True, default='', max_length=500)),
                    ('traceback', models.TextField(blank=True, default='')),
                    ('recorded_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ],
                options={
                    'indexes': [models.Index(fields=['run_id', 'outcome', 'id'], name='billing_runresult_run')],
                },
            ),
            migrations.CreateModel(
                name='RequestKey',
                fields=[
                    ('pk', models.CompositePrimaryKey('collection', 'idempotency_key', blank=True, editable=False, primary_key=True, serialize=False)),
                    ('collection', models.CharField(db_comment='the resource collection, e.g. plans', max_length=64)),
                    ('idempotency_key', models.CharField(max_length=255)),
                    ('request_digest', models.BinaryField(db_comment='SHA-256 of route and body')),
                    ('status', models.PositiveSmallIntegerField(db_comment='null: it was refused', null=True)),
                    ('body', models.JSONField(null=True)),
                    ('refusal', models.CharField(blank=True, db_comment='code of the error, or what tells it from others with that code', default='', max_length=64)),
                    ('facts', models.JSONField(null=True)),
                    ('refused_request', models.CharField(blank=True, db_comment='id of the request that was refused', default='', max_length=64)),
                    ('recorded_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ],
            ),
        ]),
        migrations.RunSQL((Path(__file__).parent / 'schema.sql').read_text(encoding='utf-8')),
        RecordSchema(),
    ]
