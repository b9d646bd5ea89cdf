"""Billing's migrations on a ledger that has data: rows stay what they were, up and down."""

from django.db.migrations.executor import MigrationExecutor

NOTE = """
    INSERT INTO billing_creditnote (subscription_id, invoice_id, currency, amount_minor) VALUES (1, 1, 'EUR', 500) RETURNING id
"""
USE = "INSERT INTO billing_creditnoteuse (credit_note_id, invoice_id, amount_minor) VALUES (%s, 2, 200)"
MOVE = "INSERT INTO billing_documentmove (invoice_id, move, actor, reason) VALUES (1, 'pay', 'admin:mara', 'card')"


def migrate(database, name):
    MigrationExecutor(database).migrate([("billing", name)])


def test_carried_credit_notes_and_moves_stay_what_they_were(scratch_database):
    with scratch_database.cursor() as cursor:
        migrate(scratch_database, "0005_grace")
        cursor.execute(NOTE)
        (note,) = cursor.fetchone()
        cursor.execute(USE, [note])
        cursor.execute(MOVE)
        migrate(scratch_database, "0008_credit_notes_on_request")
        cursor.execute("SELECT kind, number, amount_minor, credits_returned_minor, released_at FROM billing_creditnote")
        assert cursor.fetchall() == [("carried", None, 500, 0, None)]
        cursor.execute("SELECT move, reason, subscription_id, draft FROM billing_documentmove")
        assert cursor.fetchall() == [("pay", "card", None, None)]
        cursor.execute("UPDATE billing_creditnote SET released_at = now() RETURNING released_at IS NOT NULL")
        assert cursor.fetchall() == [(True,)]
        migrate(scratch_database, "0005_grace")
        cursor.execute("SELECT id, amount_minor FROM billing_creditnote")
        assert cursor.fetchall() == [(note, 500)]
        cursor.execute("SELECT move, reason FROM billing_documentmove")
        assert cursor.fetchall() == [("pay", "card")]
