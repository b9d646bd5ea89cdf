"""The same entry as a straightforward Django model. The tables are made by tables.sql."""

from django.db import models


class Holder(models.Model):
    """A holder, whose row is locked."""

    holder_id = models.CharField(primary_key=True, max_length=64)
    balance = models.BigIntegerField()

    class Meta:
        managed = False
        db_table = 'competitors"."holder'


class Entry(models.Model):
    """A row of the ledger."""

    holder = models.ForeignKey(Holder, on_delete=models.PROTECT)
    credit_type = models.CharField(max_length=32)
    sequence = models.BigIntegerField()
    kind = models.CharField(max_length=16)
    amount = models.BigIntegerField()
    balance = models.BigIntegerField()
    lots = models.JSONField()
    drawn = models.JSONField()
    idempotency_key = models.CharField(max_length=255)
    request_digest = models.CharField(max_length=64)
    recorded_at = models.DateTimeField()
    actor = models.CharField(max_length=200)
    reason = models.CharField(max_length=500)
    reference = models.CharField(max_length=200)
    previous_digest = models.CharField(max_length=64)
    digest = models.CharField(max_length=64)

    class Meta:
        managed = False
        db_table = 'competitors"."entry'
