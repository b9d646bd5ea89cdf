"""Totals of days and months: every entry once, however late it becomes visible; a closed month never changes."""

import csv
import io
import json
import re
import threading
from datetime import UTC, date, datetime, timedelta

import pytest
import time_machine
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction

from billing.models import CreditPayment
from ledger import services
from ledger.database.lock_names import TOTALS
from ledger.database.locks import advisory_lock, holder_lock
from ledger.database.statements import fetch_value
from ledger.errors import Invalid, Refused
from ledger.models import CreditType
from ledger.months import month_after, starts
from ledger.totals.closing import CountedState, TotalsDisagree, _ensure_agree, close_months
from ledger.totals.counting import ADD, COLUMNS, _add_kinds, count_entries, counted_until
from ledger.totals.expiring import expired_credits
from ledger.totals.models import DailyTotal, ExpiringTotal, MonthClose, TotalState
from ledger.totals.month_figures import month_figures
from ledger.totals.report import month_report
from tests.ledger.staff.admin_site import operator

TYPE = "tokens"
NOW = datetime.now(UTC)


def first_day_of(months_ago: int) -> date:
    """The first day of a month that is over."""
    month = NOW.date().replace(day=1)
    for _ in range(months_ago):
        month = date.fromordinal(month.toordinal() - 1).replace(day=1)
    return month


# Three months ago, two, and the last month that is over.
THREE, TWO, ONE = first_day_of(3), first_day_of(2), first_day_of(1)


@pytest.fixture
def at_noon_of(ledger_clock):
    """`at_noon_of(month, day)`: from now on the ledger records as if it were noon of that day of a month."""

    def move(month: date, day: int) -> None:
        at = datetime(month.year, month.month, day, 12, tzinfo=UTC)
        ledger_clock((at - datetime.now(UTC)) / timedelta(days=1))

    return move


def use_case(name, holder, key, **more):
    """Call that use-case for the holder's tokens."""
    return getattr(services, name)(holder_id=holder, credit_type=TYPE, idempotency_key=key, **more)


def write_history(at_noon_of):
    """Two months of everything, from the fixed start of THREE."""
    at_noon_of(THREE, 2)
    paid = {"paid_minor": 5_000, "currency": "EUR"}
    use_case("grant", "ada", "a1", amount=1_000, **paid)
    use_case("grant", "ada", "a2", amount=300, source="promotional", expires_at=starts(ONE) + timedelta(days=9))
    spend = use_case("spend", "ada", "a3", amount=400)
    use_case("refund", "ada", "a4", spend=spend.sequence, amount=50)
    with pytest.raises(Refused):
        use_case("spend", "ada", "a5", amount=5_000)
    at_noon_of(TWO, 3)
    use_case("grant", "bob", "b1", amount=200, expires_at=starts(TWO) + timedelta(days=9))
    hold = use_case("hold", "ada", "a6", amount=100, expires_at=starts(TWO) + timedelta(days=12))
    use_case("capture", "ada", "a7", hold=hold.sequence, amount=60)
    use_case("hold", "ada", "a8", amount=70, expires_at=starts(TWO) + timedelta(days=32))
    use_case("transfer", "ada", "a9", to="cyd", amount=30)
    gone = use_case("grant", "cyd", "c1", amount=10, source="promotional")
    use_case("revoke", "cyd", "c2", grant=gone.sequence)
    at_noon_of(TWO, 20)
    use_case("grant", "bob", "b2", amount=1)


FIRST = {
    "granted_purchased": 1_000, "granted_promotional": 300, "granted_postpaid": 0, "refunded": 50, "transferred_in": 0,
    "spent": 400, "expired": 0, "revoked": 0, "transferred_out": 0,
}  # fmt: skip
SECOND = {
    "granted_purchased": 201, "granted_promotional": 10, "granted_postpaid": 0, "refunded": 0, "transferred_in": 30,
    "spent": 60, "expired": 200, "revoked": 10, "transferred_out": 30,
}  # fmt: skip


# A month ---------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_what_was_only_refused_is_no_account_and_no_credit_type_of_a_month(at_noon_of):
    write_history(at_noon_of)
    at_noon_of(TWO, 21)
    for holder, credit_type in (("adda", TYPE), ("bbo", TYPE), ("ada", "tokkens")):
        with pytest.raises(Refused):
            services.spend(holder_id=holder, credit_type=credit_type, amount=1, idempotency_key="typo")
    count_entries()
    assert [each.credit_type for each in month_report(TWO).types] == [TYPE]
    close_months()

    (report,) = month_report(TWO).types
    assert (report.credit_type, report.refusals) == (TYPE, 2)
    assert "tokkens" not in month_report(TWO).as_csv()
    assert MonthClose.objects.get(month=TWO, credit_type=TYPE).accounts == 3
    # What was refused is counted, and part of what a closed month is held to.
    assert DailyTotal.objects.get(day=TWO.replace(day=21), credit_type="tokkens").refusals == 1
    assert MonthClose.objects.get(month=TWO, credit_type="tokkens").accounts == 0


@pytest.mark.django_db
def test_a_month_rolls_forward_from_the_one_before_to_the_last_unit(at_noon_of):
    write_history(at_noon_of)
    assert count_entries().is_held_up is False
    assert close_months() == [THREE, TWO, ONE]
    (first,), (second,), (third,) = (month_report(month).types for month in (THREE, TWO, ONE))
    assert (first.opening, first.movements, first.closing, first.held) == (0, FIRST, 950, 0)
    assert (second.opening, second.movements, second.closing, second.held) == (950, SECOND, 891, 70)
    assert (third.opening, set(third.movements.values()), third.closing) == (891, {0}, 891)
    assert (first.entries, first.refusals, second.refusals, first.late_entries) == (5, 1, 0, 0)
    assert (first.paid, second.paid) == ({"EUR": 5_000}, {})
    assert [tuple(row.values()) for row in first.outstanding] == [
        (None, "purchased", False, 950),
    ]
    assert [tuple(row.values()) for row in second.outstanding] == [
        (None, "purchased", False, 821),
        (None, "purchased", True, 70),
    ]
    for report in (first, second, third):
        assert sum(row["amount"] for row in report.outstanding) - report.owed == report.closing


@pytest.mark.django_db
def test_a_closed_month_has_the_same_bytes_whatever_comes_later(at_noon_of):
    write_history(at_noon_of)
    count_entries()
    close_months()
    before = [(month_report(month).as_json(), month_report(month).as_csv()) for month in (THREE, TWO)]
    at_noon_of(NOW.date().replace(day=1), 1) if NOW.hour >= 12 or NOW.day > 1 else None
    use_case("spend", "ada", "later", amount=5)
    count_entries()
    assert close_months() == []
    assert [(month_report(month).as_json(), month_report(month).as_csv()) for month in (THREE, TWO)] == before
    with pytest.raises(DatabaseError, match="is closed"), transaction.atomic():
        DailyTotal.objects.filter(day__gte=THREE).update(spent=0)
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        MonthClose.objects.filter(month=THREE).update(balance=0)


@pytest.mark.django_db
def test_the_last_microsecond_of_a_month_belongs_to_it(at_noon_of):
    at_noon_of(TWO, 3)
    for at in (datetime.max.replace(tzinfo=UTC), datetime(2999, 1, 1, tzinfo=UTC) - timedelta(microseconds=1)):
        use_case("grant", "ada", f"{at.year}", amount=1, expires_at=at)
    count_entries()
    close_months()
    (of_type,) = month_report(TWO).types
    assert [row["expires"] for row in of_type.outstanding] == ["2998-12", "9999-12"]


@pytest.mark.django_db
def test_the_open_month_says_up_to_when_it_is_counted():
    use_case("grant", "ada", "a1", amount=70)
    until = count_entries().until
    report = month_report(until.date().replace(day=1))
    assert (report.is_closed, report.as_of) == (False, until)
    (of_type,) = report.types
    assert (of_type.opening, of_type.closing, of_type.outstanding, of_type.paid) == (0, 70, None, None)
    with pytest.raises(Invalid):
        month_report(month_after(until.date().replace(day=1)))


# Every entry once ------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_counting_in_many_slices_and_again_counts_each_entry_once(at_noon_of):
    write_history(at_noon_of)
    for _ in range(3):
        count_entries()
    sums = {name: sum(getattr(row, name) for row in DailyTotal.objects.all()) for name in COLUMNS}
    assert sums["entries"] == 16
    assert sums["granted_purchased"] == 1_201
    assert DailyTotal.objects.count() == len({(row.day, row.credit_type) for row in DailyTotal.objects.all()}) == 3


@pytest.mark.django_db
def test_a_slice_takes_as_long_as_it_has_entries(at_noon_of):
    write_history(at_noon_of)
    bounds = []

    def record(execute, sql, *more):
        if sql == ADD:
            bounds.append(fetch_value(str, "SHOW statement_timeout"))
        return execute(sql, *more)

    with connection.execute_wrapper(record):
        count_entries()
    assert set(bounds) == {"0"}


@pytest.mark.django_db
def test_an_entry_that_a_clock_set_back_puts_into_a_closed_month_is_counted_late(at_noon_of):
    write_history(at_noon_of)
    TotalState.objects.update(counted_until=starts(THREE))
    with connection.cursor() as cursor:
        cursor.execute(ADD, {"since": starts(THREE), "until": starts(TWO)})
    TotalState.objects.update(counted_until=starts(TWO))
    assert close_months() == [THREE]
    before = month_report(THREE).as_json()
    at_noon_of(THREE, 25)
    use_case("grant", "late", "l1", amount=9)
    count_entries()
    assert close_months() == [TWO, ONE]
    assert month_report(THREE).as_json() == before
    (second,) = month_report(TWO).types
    assert second.late_entries == 1
    assert second.movements == SECOND | {"granted_purchased": 210}
    assert second.closing == 900


def test_totals_that_are_not_what_the_accounts_come_to_keep_the_month_open():
    state = CountedState(TYPE, accounts=1, entries=5, balance=950)
    sums = dict.fromkeys(COLUMNS, 0) | {"granted_purchased": 950, "entries": 5}
    _ensure_agree(THREE, {TYPE: sums}, [state])
    for wrong in ({"entries": 4}, {"granted_purchased": 951}, {"held_change": 1}):
        with pytest.raises(TotalsDisagree, match=f"{THREE:%Y-%m}, {TYPE}"):
            _ensure_agree(THREE, {TYPE: sums | wrong}, [state])


# An entry that becomes visible late ------------------------------------------------------------------


@pytest.fixture
def fresh_type(new_holder):
    """The code of a credit type that no other test has."""
    return f"t{new_holder()[-16:]}"


def entries_counted(credit_type):
    """How many entries the totals have of the credit type."""
    return sum(row.entries for row in DailyTotal.objects.filter(credit_type=credit_type))


def test_a_transaction_that_has_not_committed_is_waited_for(run_threads, new_holder, fresh_type):
    """The writer has its time and is not seen yet; counting goes on only once it is."""
    holder, before = new_holder(), counted_until()
    with transaction.atomic(), holder_lock(holder) as lock:
        services.grant_under(lock, holder_id=holder, amount=1, credit_type=fresh_type, idempotency_key="k")
        (counted,) = run_threads(lambda _: count_entries(patience_seconds=0), 1)
        assert counted.is_held_up is True
        assert counted.until == before
    assert count_entries().is_held_up is False
    assert entries_counted(fresh_type) == 1


def test_a_writer_that_has_its_lock_and_has_written_nothing_is_waited_for_too(run_threads, new_holder, fresh_type):
    holder = new_holder()
    with transaction.atomic(), holder_lock(holder):
        (counted,) = run_threads(lambda _: count_entries(patience_seconds=0), 1)
        assert counted.is_held_up is True


def test_control_counting_by_time_alone_misses_it(run_threads, new_holder, fresh_type):
    """The twin: the same moment, without looking for writers. The entry is in no total, and never would be."""
    holder = new_holder()
    count_entries()

    def count_by_time(_):
        with transaction.atomic(), connection.cursor() as cursor:
            slice_of_time = {"since": counted_until()}
            cursor.execute("SELECT clock_timestamp()")
            (slice_of_time["until"],) = cursor.fetchone()
            cursor.execute(ADD, slice_of_time)
            cursor.execute("UPDATE ledger_total_state SET counted_until = %(until)s", slice_of_time)
            return slice_of_time

    with transaction.atomic(), holder_lock(holder) as lock:
        services.grant_under(lock, holder_id=holder, amount=1, credit_type=fresh_type, idempotency_key="k")
        (missed,) = run_threads(count_by_time, 1)
    count_entries()
    assert entries_counted(fresh_type) == 0
    # What was missed is added, so that an audit in a later test finds nothing.
    with connection.cursor() as cursor:
        cursor.execute(ADD, missed)
        _add_kinds(cursor, missed["since"], missed["until"])
    assert entries_counted(fresh_type) == 1


# Commands --------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_the_commands_count_close_and_report(at_noon_of, capsys):
    write_history(at_noon_of)
    call_command("update_totals", format="json")
    printed = json.loads(capsys.readouterr().out)
    assert printed["closed"] == [f"{month:%Y-%m}" for month in (THREE, TWO, ONE)]
    call_command("update_totals")
    assert capsys.readouterr().out.startswith("Entries are counted up to ")
    call_command("ledger_report", month=TWO, format="csv")
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert rows[1] == [f"{TWO:%Y-%m}", "closed", TYPE, "opening", "", "", "950", f"smallest unit of {TYPE}"]
    assert [f"{TWO:%Y-%m}", "closed", TYPE, "expired", "", "", "-200", f"smallest unit of {TYPE}"] in rows
    call_command("ledger_report", month=TWO, format="json")
    of_type = json.loads(capsys.readouterr().out)["types"][0]
    assert (of_type["closing"], of_type["unit"], of_type["paid_unit"]) == (891, f"smallest unit of {TYPE}", "minor units")
    call_command("ledger_report", month=TWO)
    text = capsys.readouterr().out
    assert text.startswith(f"Month {TWO:%Y-%m}, closed\n\n{TYPE}\n  opening ")
    assert "of it held" in text
    call_command("ledger_report", credit_type="none-of-it")
    assert capsys.readouterr().out == f"Month {ONE:%Y-%m}, closed\n"
    with pytest.raises(CommandError, match=r"There is no report of .*: entries are counted up to"):
        call_command("ledger_report", month=month_after(NOW.date().replace(day=1)))


@pytest.mark.django_db
def test_people_read_the_report_in_the_unit_of_the_type_and_files_stay_as_they_are(at_noon_of, capsys):
    at_noon_of(TWO, 3)
    paid = {"paid_minor": 85_000, "currency": "EUR"}
    use_case("grant", "ada", "a1", amount=100_050, source="purchased", **paid)
    use_case("spend", "ada", "a2", amount=1_234)
    count_entries()
    close_months()
    before = [(month_report(TWO).as_json(), month_report(TWO).as_csv())]
    CreditType.objects.create(code=TYPE, name="US dollars", unit="USD", scale=2)
    call_command("ledger_report", month=TWO)
    text = capsys.readouterr().out
    assert f"\n{TYPE}: US dollars, in USD\n" in text
    lines = dict(re.split(r" {2,}", line.strip()) for line in text.splitlines() if line.startswith("  "))
    assert (lines["granted purchased"], lines["spent"], lines["closing"]) == ("1,000.50", "−12.34", "988.16")
    assert (lines["paid"], lines["entries"], lines["expires never, purchased"]) == ("850.00 EUR", "2", "988.16")
    assert "minor units" not in text
    # What programs read is the same however the type is shown.
    assert [(month_report(TWO).as_json(), month_report(TWO).as_csv())] == before
    assert "paid_EUR_minor,,,85000,EUR minor units\r\n" in before[0][1]
    assert "entries,,,2,entries\r\n" in before[0][1]
    page = operator().get(f"/admin/ledger/account/month-end/?month={TWO:%Y-%m}").content.decode()
    for words in (f"US dollars ({TYPE}), in USD", "1,000.50", "−12.34", "988.16", "Paid for them, in EUR", "850.00"):
        assert words in page, words


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("month", "why"),
    [
        (date(1, 1, 1), "of 0001-01: the first month is 2000-01"),
        (date(9999, 12, 1), "of 9999-12: no entries have been counted yet; manage.py update_totals counts them"),
    ],
)
def test_a_month_without_a_report_says_why(month, why):
    TotalState.objects.update(counted_until=datetime(2000, 1, 1, tzinfo=UTC))
    with pytest.raises(CommandError, match=f"There is no report {why}"):
        call_command("ledger_report", month=month)


@pytest.mark.slow
@pytest.mark.check
@pytest.mark.django_db
def test_the_page_shows_a_month_and_saves_it(at_noon_of):
    write_history(at_noon_of)
    count_entries()
    close_months()
    client = operator()
    url = "/admin/ledger/account/month-end/"
    page = client.get(f"{url}?month={TWO:%Y-%m}").content.decode()
    assert "This month is final: its figures never change." in page
    for words in (TYPE, "Granted, purchased", "950", "−200", "891", f"?month={THREE:%Y-%m}", f"?month={ONE:%Y-%m}"):
        assert words in page, words
    assert "This month is open" in client.get(f"{url}?month={NOW:%Y-%m}").content.decode()
    saved = client.get(f"{url}?month={TWO:%Y-%m}&format=csv")
    assert saved.headers["Content-Disposition"] == f'attachment; filename="month-{TWO:%Y-%m}.csv"'
    assert saved.content.decode() == month_figures(TWO).as_csv()
    for wrong in ("x", "2026-13", "9999-12", "0001-01"):
        response = client.get(url, {"month": wrong}, follow=True)
        assert response.redirect_chain == [(url, 302)]
        assert f"There is no report of “{wrong}”" in response.content.decode()
    assert operator("ledger.view_account", name="finn").get(url).status_code == 403


@pytest.mark.django_db
def test_the_page_of_a_new_ledger_shows_the_month_that_has_begun():
    use_case("grant", "ada", "a1", amount=1_000)
    count_entries(patience_seconds=0)
    client, url = operator(), "/admin/ledger/account/month-end/"
    page = client.get(url).content.decode()
    assert f"{NOW:%B %Y}" in page
    assert "This month is open; entries are counted up to" in page
    before = client.get(f"{url}?month={TWO:%Y-%m}").content.decode()
    assert f"{TWO:%B %Y}" in before
    assert "This month is final" in before


@pytest.mark.django_db
def test_the_page_of_a_ledger_whose_entries_are_not_counted_yet_says_so():
    use_case("grant", "ada", "a1", amount=1_000)
    page = " ".join(operator().get("/admin/ledger/account/month-end/").content.decode().split())
    assert "No entries are counted yet, so there are no figures. The worker counts them every minute." in page
    assert "None" not in page.partition('id="content-main"')[2].partition("</div>")[0]
    assert "Nothing was granted" not in page
    assert "There is no report" not in page


@pytest.mark.django_db
def test_the_page_writes_credits_in_the_unit_of_their_type(at_noon_of):
    CreditType.objects.create(code=TYPE, name="US dollars", unit="USD", scale=2)
    write_history(at_noon_of)
    count_entries()
    close_months()
    page = operator().get(f"/admin/ledger/account/month-end/?month={TWO:%Y-%m}").content.decode()
    for words in (f"US dollars ({TYPE}), in USD", ">9.50<", ">−2.00<", ">2.01<", ">8.91<"):
        assert words in page, words
    assert ">50.00<" in operator(name="ben").get(f"/admin/ledger/account/month-end/?month={THREE:%Y-%m}").content.decode()


def test_two_processes_do_not_count_at_once(run_threads, committed_db, capsys):
    began, done = threading.Event(), threading.Event()

    def hold(_):
        with transaction.atomic(), advisory_lock(TOTALS()):
            began.set()
            done.wait(30)

    def count(_):
        began.wait(30)
        try:
            with pytest.raises(SystemExit) as ended:
                call_command("update_totals")
            return ended.value.code
        finally:
            done.set()

    assert run_threads(lambda index: (hold, count)[index](index), 2)[1] == 4


# The invoices ----------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_credits_that_paid_invoices_tie_to_the_invoices_when_the_month_is_closed(at_noon_of):
    def pay_40(invoice_id, key):
        """An invoice of billing paid with 40 credits, on both sides: the entry, and the payment of the invoice."""
        entry = use_case("spend", "ada", key, amount=40, actor="billing", reason="Invoice payment")
        CreditPayment.objects.create(
            invoice_id=invoice_id, holder_id="ada", credit_type=TYPE, credits=40, amount_minor=40, spend_sequence=entry.sequence
        )

    at_noon_of(TWO, 3)
    use_case("grant", "ada", "a1", amount=1_000)
    pay_40(1, "invoice/1/pay")
    pay_40(2, "invoice/2/pay")
    use_case("spend", "ada", "invoice/3/pay", amount=5, actor="billing")  # has no payment: the tie shows 5 too many
    use_case("spend", "ada", "other", amount=7)  # no invoice
    count_entries()
    close_months()
    (of_type,) = month_report(TWO).types
    tie = {"name": "invoices paid with credits", "credit_type": TYPE, "documents": 80, "entries": 85}
    assert of_type.ties == [tie]
    assert "invoices paid with credits by the entries,,,85,smallest unit of" in month_report(TWO).as_csv()
    assert month_report(ONE).types[0].ties == []


# What has expired and is not booked ------------------------------------------------------------------


def lots_of_all_accounts():
    """What open lots that expire hold, by instant and credit type, from the last entry of each account."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT (lot ->> 3)::numeric::bigint, e.credit_type, sum((lot ->> 1)::numeric)
            FROM ledger_entry AS e CROSS JOIN LATERAL json_array_elements(e.lots) AS lot
            WHERE lot ->> 3 IS NOT NULL AND NOT EXISTS (
                SELECT FROM ledger_entry AS later WHERE later.holder_id = e.holder_id
                AND later.credit_type = e.credit_type AND later.sequence > e.sequence)
            GROUP BY 1, 2
            """
        )
        return {(expires_us, credit_type): int(amount) for expires_us, credit_type, amount in cursor.fetchall()}


def counted_lots():
    """The same, as the totals have it."""
    return {(row.expires_us, row.credit_type): int(row.credits) for row in ExpiringTotal.objects.all()}


@pytest.mark.django_db
def test_what_expires_when_is_counted_with_the_entries_in_any_number_of_counts():
    at = datetime.now(UTC) + timedelta(days=20)
    for number in range(5):
        use_case("grant", f"h{number}", f"g{number}", amount=10 * (number + 1), expires_at=at)
        use_case("grant", f"h{number}", f"more{number}", amount=3, expires_at=at + timedelta(hours=number))
        use_case("spend", f"h{number}", f"s{number}", amount=5)
        count_entries()
        assert counted_lots() == lots_of_all_accounts() != {}
    with pytest.raises(Refused):
        use_case("spend", "h1", "no", amount=10**6)
    use_case("transfer", "h1", "moved", to="h9", amount=4)
    use_case("spend", "h0", "rest", amount=8)
    count_entries()
    assert counted_lots() == lots_of_all_accounts() != {}
    close_months()
    assert counted_lots() == lots_of_all_accounts() != {}


@pytest.mark.django_db
def test_lots_whose_expiry_is_booked_are_not_counted_any_more(at_noon_of):
    write_history(at_noon_of)
    count_entries()
    assert counted_lots() == lots_of_all_accounts() == {}


@pytest.mark.django_db
def test_what_has_expired_is_subtracted_at_its_microsecond_and_not_twice_when_it_is_booked():
    at = datetime.now(UTC) + timedelta(hours=1)
    use_case("grant", "ada", "g1", amount=100, expires_at=at)
    use_case("grant", "ada", "g2", amount=7)
    use_case("hold", "ada", "h1", amount=30, expires_at=at + timedelta(days=3))
    count_entries()
    assert expired_credits(at - timedelta(microseconds=1)) == {}
    assert expired_credits(at) == {TYPE: 70}
    with time_machine.travel(at + timedelta(seconds=1), tick=True):
        page = operator().get("/admin/").content.decode()
    assert "37</span> outstanding, 7 of it spendable, 30 held" in re.sub(r"\s+", " ", page).replace(
        "tokens</span>", "</span>"
    ).replace(" </span>", "</span>")
    assert "70 that have expired and are not booked yet" in page


@pytest.mark.django_db
def test_a_closed_month_says_what_had_expired_at_its_end_and_was_not_booked(at_noon_of):
    at_noon_of(TWO, 3)
    use_case("grant", "ada", "g1", amount=100, expires_at=starts(TWO) + timedelta(days=9))
    use_case("grant", "ada", "g2", amount=50, expires_at=starts(ONE))
    count_entries()
    close_months()
    report, later = month_report(TWO), month_report(ONE)
    assert (report.types[0].closing, report.types[0].expired_unbooked) == (150, 100), (
        "what expires as the next month begins is not"
    )
    assert later.types[0].expired_unbooked == 150
    assert f"{TWO:%Y-%m},closed,{TYPE},expired_unbooked,,,100,smallest unit of {TYPE}" in report.as_csv()
    assert json.loads(report.as_json())["types"][0]["expired_unbooked"] == 100
    page = operator().get("/admin/ledger/account/month-end/", {"month": f"{TWO:%Y-%m}"}).content.decode()
    assert "of which expired, but not yet booked" in page


@pytest.mark.django_db
def test_closing_a_month_adds_up_again_what_a_clock_that_went_back_left_out(at_noon_of):
    at_noon_of(TWO, 20)
    use_case("grant", "ada", "g1", amount=100, expires_at=starts(ONE) + timedelta(days=40))
    count_entries()
    ExpiringTotal.objects.update(credits=1)
    count_entries()
    assert counted_lots() != lots_of_all_accounts()
    close_months()
    assert counted_lots() == lots_of_all_accounts()


@pytest.mark.django_db
def test_sums_that_readers_of_json_round_are_strings_in_the_report_too(at_noon_of, capsys):
    at_noon_of(TWO, 3)
    largest = 2**53 - 1
    for n in range(2):
        use_case("grant", "ada", f"g{n}", amount=largest, priority=n)
    count_entries()
    close_months()

    call_command("ledger_report", month=TWO, format="json")
    [of_type] = json.loads(capsys.readouterr().out)["types"]
    assert of_type["closing"] == sum(each for each in of_type["movements"].values() if isinstance(each, int)) == 2 * largest
    assert of_type["exact_integers"] == {"closing": str(2 * largest)}
    assert of_type["movements"]["exact_integers"] == {"granted_purchased": str(2 * largest)}
    assert "exact_integers" not in json.loads(month_report(THREE).as_json())
