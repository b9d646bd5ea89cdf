"""What operators may be permitted: to look, to grant, refund and revoke, to make and revoke API keys. Nothing else exists to permit."""

from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('ledger', '0001_initial'),
    ]

    operations = [
        migrations.AlterModelOptions(
            name='account',
            options={'default_permissions': ('view',), 'managed': False, 'permissions': [('view_locks', 'Can view current locks')], 'verbose_name': 'account', 'verbose_name_plural': 'holders with balances'},
        ),
        migrations.AlterModelOptions(
            name='apikey',
            options={'default_permissions': ('add', 'view'), 'permissions': [('revoke_apikey', 'Can revoke API key')], 'verbose_name': 'API key'},
        ),
        migrations.AlterModelOptions(
            name='entry',
            options={'default_permissions': (), 'verbose_name_plural': 'entries'},
        ),
        migrations.AlterModelOptions(
            name='entrylisting',
            options={'default_permissions': ('view',), 'managed': False, 'permissions': [('grant_credits', 'Can grant credits'), ('refund_spend', 'Can refund a spend'), ('revoke_grant', 'Can revoke the rest of a grant')], 'verbose_name': 'entry', 'verbose_name_plural': 'entries'},
        ),
        migrations.AlterModelOptions(
            name='refusal',
            options={'default_permissions': ()},
        ),
        migrations.AlterModelOptions(
            name='refusallisting',
            options={'default_permissions': ('view',), 'managed': False, 'verbose_name': 'refusal', 'verbose_name_plural': 'refusals'},
        ),
    ]
