"""Runs of the generator, tasks of the timetable, and the keys of writes over REST."""

from datetime import timedelta
from typing import Final

from django.db import models
from django.db.models.functions import Now

from ledger.typesetting.languages import ENGLISH

AUDIT: Final = "audit_ledger"
"""The task of the daily audit."""
AUDIT_LATE_AFTER: Final = timedelta(hours=36)
"""An older audit is late: the day's audit has not ended."""


class Run(models.Model):
    """One call of generate_invoices, on one machine."""

    run_id = models.UUIDField(primary_key=True)
    as_of = models.DateTimeField()
    options = models.JSONField(default=dict)
    host = models.CharField(max_length=255, blank=True, default="")
    started_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True)
    exit_code = models.SmallIntegerField(null=True)
    summary = models.JSONField(default=dict)

    class Meta:
        indexes = [models.Index(fields=["started_at"], name="billing_run_started")]

    def __str__(self) -> str:
        return f"of {ENGLISH.day(self.started_at.date())}, {self.started_at:%H:%M} UTC"


class RunResult(models.Model):
    """The result of a run for one subscription; kept with its traceback if it failed."""

    run_id = models.UUIDField()
    subscription_ref = models.CharField(max_length=64)
    outcome = models.CharField(max_length=16)
    detail = models.CharField(max_length=500, blank=True, default="")
    traceback = models.TextField(blank=True, default="")
    recorded_at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = [models.Index(fields=["run_id", "outcome", "id"], name="billing_runresult_run")]


class ScheduledTask(models.Model):
    """A task of the timetable, such as the daily audit, with its next time and its last result; one row each."""

    name = models.CharField(max_length=64, primary_key=True)
    due_at = models.DateTimeField(db_comment="while it runs: when another worker takes it, should this one not finish")
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)
    exit_code = models.SmallIntegerField(null=True)
    succeeded_at = models.DateTimeField(null=True, db_comment="when it last succeeded, whatever came after")
    host = models.CharField(max_length=255, blank=True, default="")
    executions = models.BigIntegerField(db_default=0, db_comment="how often it has ended, in all workers")
    failures = models.BigIntegerField(db_default=0, db_comment="how often it has failed or was stopped")
    seconds = models.FloatField(db_default=0, db_comment="how long all executions took together")

    def __str__(self) -> str:
        return self.name


class RequestKey(models.Model):
    """The Idempotency-Key of a write over REST, with its result. Append-only, kept permanently."""

    pk = models.CompositePrimaryKey("collection", "idempotency_key")
    collection = models.CharField(max_length=64, db_comment="the resource collection, e.g. plans")
    idempotency_key = models.CharField(max_length=255)
    request_digest = models.BinaryField(db_comment="SHA-256 of route and body")
    status = models.PositiveSmallIntegerField(null=True, db_comment="null: it was refused")
    body = models.JSONField(null=True)
    refusal = models.CharField(
        max_length=64, blank=True, default="", db_comment="code of the error, or what tells it from others with that code"
    )
    facts = models.JSONField(null=True)
    refused_request = models.CharField(max_length=64, blank=True, default="", db_comment="id of the request that was refused")
    recorded_at = models.DateTimeField(db_default=Now())
