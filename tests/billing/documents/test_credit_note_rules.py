"""Credit notes in figures: parts that add up to the invoice, tax to the cent, and the way back of the money."""

from dataclasses import replace
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from billing.documents.credit_note_rules import LineRest, NoteSettlement, TaxRest, creditable, given_back, parts, whole_rest
from billing.rating.tax_amounts import TaxLine, tax_minor

S20, S7 = ("S", Decimal(20)), ("S", Decimal(7))


def line_rest(position, net, left=None, group=S20, item=None):
    """A line of that net amount, and how much of it is not credited yet."""
    return LineRest(position, f"line {position}", *group, net, net if left is None else left, item)


def amounts(note):
    """What a note takes back, by position."""
    return {line.position: line.amount_minor for line in note.lines}


def tax_rest(base, group=S20, credited=0):
    """The tax on that base, and how much of it is credited."""
    return TaxRest(*group, base, tax_minor(base, group[1]), credited)


def test_the_whole_invoice_is_credited_with_its_tax():
    note = whole_rest([line_rest(1, 1000), line_rest(2, 555, group=S7)], [tax_rest(1000), tax_rest(555, S7)])
    assert [one.amount_minor for one in note.lines] == [1000, 555]
    # 7 % of 5.55 is 0.3885
    assert note.taxes == (TaxLine("S", Decimal(7), 555, 39), TaxLine("S", Decimal(20), 1000, 200))
    assert (note.subtotal_minor, note.tax_minor, note.total_minor) == (1555, 239, 1794)


def test_three_thirds_of_a_line_have_the_tax_of_the_whole():
    # 19 % of 1.00 is 0.19; of 0.33 it is 0.0627, of 0.66 0.1254: 6 + 7 + 6 cents.
    group = ("S", Decimal(19))
    taken, taxes = 0, []
    for amount in (33, 33, 34):
        note = parts([line_rest(1, 100, 100 - taken, group)], [tax_rest(100, group, taken)], {1: amount})
        taxes.append(note.tax_minor)
        taken += amount
    assert taxes == [6, 7, 6]
    assert sum(taxes) == tax_minor(100, group[1])


def test_a_charge_is_not_credited_beyond_the_credit_beside_it():
    lines, taxes = [line_rest(1, -484), line_rest(2, 1452)], [tax_rest(968)]
    assert creditable(lines) == {2: 968}
    assert parts(lines, taxes, {2: 969}) is None
    assert parts(lines, taxes, {2: 968}).total_minor == 968 + 194
    rest = whole_rest(lines, taxes)
    assert (amounts(rest), rest.subtotal_minor, rest.tax_minor) == ({2: 968}, 968, 194)
    assert whole_rest([line_rest(1, -484), line_rest(2, 1452, 484)], [tax_rest(968, credited=968)]).lines == ()


def test_a_credit_lowers_the_charge_that_bills_its_time_again_and_then_the_others_of_its_category():
    changed = [line_rest(1, -500, item=1), line_rest(2, -300, item=2), line_rest(3, 900, item=1), line_rest(4, 700, item=2)]
    assert amounts(whole_rest(changed, [tax_rest(800)])) == {3: 400, 4: 400}
    # 5.00 at 7 % have nothing to do with the credit; 4.00 of 9.00 have no charge of their item after them.
    lines = [line_rest(1, 1000, item=2), line_rest(2, -900, item=1), line_rest(3, 500, item=1), line_rest(4, 500, group=S7)]
    assert amounts(whole_rest(lines, [tax_rest(600), tax_rest(500, S7)])) == {1: 600, 4: 500}


@given(
    st.lists(st.builds(line_rest, st.just(0), st.integers(-999, 999), group=st.sampled_from([S20, S7]), item=st.integers(1, 2)))
)
def test_a_whole_note_takes_back_what_is_left_of_each_category_from_its_charges(lines):
    lines = [replace(line, position=position) for position, line in enumerate(lines, 1)]
    taken = amounts(whole_rest(lines, []))
    assert all(0 < amount <= lines[position - 1].left_minor for position, amount in taken.items())
    for category in (S20, S7):
        of_it = [line for line in lines if (line.category, line.rate) == category]
        assert sum(taken.get(line.position, 0) for line in of_it) == max(sum(line.left_minor for line in of_it), 0)


def test_two_lines_together_are_not_credited_beyond_their_category():
    lines = [line_rest(1, -500), line_rest(2, 600), line_rest(3, 600)]
    assert creditable(lines) == {2: 600, 3: 600}
    assert parts(lines, [tax_rest(700)], {2: 600, 3: 101}) is None
    assert parts(lines, [tax_rest(700)], {2: 600, 3: 100}).subtotal_minor == 700


def test_a_credit_is_not_credited():
    assert parts([line_rest(1, -484), line_rest(2, 1452)], [tax_rest(968)], {1: 1}) is None


def test_the_money_goes_back_the_way_it_came():
    def back(total, due=0, paid=0, count=0, worth=0):
        return given_back(total, due_minor=due, paid_minor=paid, credits_left=count, credits_left_minor=worth)

    assert back(500, due=700) == NoteSettlement(500, 0, 0, 0)
    # 7.00 are due, 5.00 were paid with 500 credits.
    assert back(1000, due=700, count=500, worth=500) == NoteSettlement(700, 300, 300, 0)
    assert back(1000, paid=700, count=500, worth=500) == NoteSettlement(0, 300, 300, 700)
    # 171 credits at 0.07 paid 11.97, 0.03 were paid in money.
    assert back(500, paid=3, count=171, worth=1197) == NoteSettlement(0, 71, 497, 3)
    assert back(1200, paid=3, count=171, worth=1197) == NoteSettlement(0, 171, 1197, 3)
    # One credit of 100.00: half of it does not go back.
    assert back(5000, count=1, worth=10000) == NoteSettlement(0, 0, 0, 5000)
    assert back(100) == NoteSettlement(0, 0, 0, 100)


@given(
    st.lists(st.integers(1, 10_000), min_size=1, max_size=6),
    st.sampled_from([Decimal(0), Decimal("5.5"), Decimal(7), Decimal(19), Decimal(20)]),
    st.data(),
)
def test_notes_never_exceed_the_invoice_and_together_come_to_it(nets, rate, data):
    group = ("S", rate)
    whole = tax_rest(sum(nets), group)
    left, credited, taxed = dict(enumerate(nets, 1)), 0, 0
    for _ in range(data.draw(st.integers(0, 5))):
        wanted = {position: amount for position, rest in left.items() if rest and (amount := data.draw(st.integers(0, rest)))}
        lines = [line_rest(position, nets[position - 1], rest, group) for position, rest in left.items()]
        note = parts(lines, [tax_rest(sum(nets), group, credited)], wanted)
        assert note is not None
        left = {position: rest - wanted.get(position, 0) for position, rest in left.items()}
        credited, taxed = credited + note.subtotal_minor, taxed + note.tax_minor
        assert note.tax_minor >= 0
        assert taxed <= whole.tax_minor
    rest = whole_rest(
        [line_rest(position, nets[position - 1], amount, group) for position, amount in left.items()],
        [tax_rest(sum(nets), group, credited)],
    )
    assert (credited + rest.subtotal_minor, taxed + rest.tax_minor) == (sum(nets), whole.tax_minor)


@given(st.integers(1, 10_000), st.integers(1, 10_000), st.data())
def test_credits_go_back_to_the_last_one_and_never_for_more_than_they_paid(credits_paid, worth, data):
    credits_left, worth_left, left = credits_paid, worth, worth
    for notes_left in range(20, -1, -1):
        amount = data.draw(st.integers(1, left)) if notes_left else left
        back = given_back(amount, due_minor=0, paid_minor=0, credits_left=credits_left, credits_left_minor=worth_left)
        assert back.credits_minor + back.left_minor == amount
        credits_left, worth_left, left = credits_left - back.credits, worth_left - back.credits_minor, left - amount
        assert credits_left >= 0
        assert worth_left >= 0
        assert (credits_left == 0) == (worth_left == 0)
        if not left:
            break
    assert given_back(worth, due_minor=0, paid_minor=0, credits_left=credits_paid, credits_left_minor=worth) == NoteSettlement(
        0, credits_paid, worth, 0
    )
