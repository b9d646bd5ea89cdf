"""What people ask of the product: 59 questions, the way to each answer from the first page, and what stands there.

A way has at most two clicks, or one search whose hit is opened. A question without a way is one that the product does not answer.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple


class Click(NamedTuple):
    """A link or button, by how its text begins."""

    text: str


class Search(NamedTuple):
    """What is typed into *Find anything*, and how the hit begins that is opened."""

    words: str
    hit: str


HOME: Final = "home"
CUSTOMERS_PAGE: Final = "customer's page"


@dataclass(frozen=True)
class Question:
    """A question.

    Args:
        way: from `begins_at`; empty if the answer stands there.
        answer: a regular expression that the text of the last page contains.
        reason: why the product does not answer it; empty if it does.
    """

    words: str
    way: tuple[Click | Search, ...] = ()
    answer: str = ""
    reason: str = ""
    begins_at: str = HOME


def asked_by_customers(words: str, answer: str) -> Question:
    """A question to the page of Willow & Söhne, whose link they have."""
    return Question(words, (), answer, begins_at=CUSTOMERS_PAGE)


SUPPORT: Final = (
    Question("Who is the customer of this company?", (Search("lumen stud", "CUST-LUMEN"),), r"Lumen Studios GmbH \(CUST-LUMEN\)"),
    Question(
        "Who has this e-mail?", (Search("invoices@harbor.example", "CUST-HARBOR"),), r"Harbor Robotics GmbH \(CUST-HARBOR\)"
    ),
    Question("What does she have, and what expires?", (Click("willow"),), r"8,\d{3} available.*400.*expires"),
    Question("Why was she refused?", (Click("Latest refusals"), Click("DATE")), r"Refused: .* requested"),
    Question("Give back 50 of a job.", (Search("job-17", "Refund spend"),), r"Refund spend #\d+ of lumen.*Amount"),
    Question("Did this payment arrive?", (Search("pi_demo_atlas", "Purchase pi_demo_atlas"),), r"pi_demo_atlas"),
    Question("Send the mail of an invoice again.", (Click("Send it again"),), r"Send again"),
    Question("Give her a link to her page.", (Click("willow"),), r"Customer's page"),
    Question("Who changed this?", (Search("staff log", "Staff log"),), r"admin:admin Logged in"),
    Question("Change her e-mail.", (Search("lumen stud", "CUST-LUMEN"),), r"Edit"),
    Question("What was used, by model?", (), r"Use by model .*nimbus-large [\d,]+ \(\d+%\)"),
    Question("Take back a wrong grant.", (Click("willow"), Click("#")), r"Revoke"),
)

FINANCE: Final = (
    Question("What is unpaid in all?", (), r"Unpaid [\d,.]+ EUR \d+ open invoices"),
    Question("Who is overdue?", (Click("See overdue invoices"),), r"Orchid Labs GmbH CUST-ORCHID OVERDUE"),
    Question("What is the sum of it?", (), r"Overdue [\d,.]+ EUR \d+ invoices"),
    Question(
        "Who owes most?", (Click("Who owes most"),), r"EUR [\d,.]+ EUR owed by \d+ customers?, .*Orchid Labs GmbH CUST-ORCHID"
    ),
    Question("How old are the debts of each customer?", (Click("The month before"),), r"1 to 30 days overdue [\d,.]+"),
    Question(
        "Remind this customer now.", (Click("See overdue invoices"), Click("Remind now")), r"Remind of INV-\d+ now .*The mail has"
    ),
    Question(
        "Stop the reminders of an invoice.",
        (Click("See overdue invoices"), Click("Stop reminders")),
        r"Put reminders of INV-\d+ on hold",
    ),
    Question("Book a transfer.", (Click("Book it"),), r"120\.00 EUR"),
    Question("Credit one line.", (Click("See overdue invoices"), Click("INV-000009")), r"Credit"),
    Question("How much VAT, by country?", (Click("The month before"),), r"AT, 0 % .*DE, 19 %"),
    Question("How much revenue is deferred?", (Click("The month before"), Click("NEXT MONTH")), r"Deferred revenue"),
    Question("What was the revenue of six months?", (Click("The year"),), r"MRR"),
    Question("Export the journal for DATEV.", (Search("datev", "Export the journal"),), r"CSV"),
)

PRICING: Final = (
    Question("Make a plan.", (Search("plan", "Create a plan"),), r"Name.*Currency"),
    Question("Make a pack.", (Search("pack", "Create a pack"),), r"New pack"),
    Question("Make a coupon.", (Search("coupon", "Create a coupon"),), r"New coupon .*a percentage"),
    Question("Make a meter, and try it.", (Search("meter", "Create a meter"),), r"Expression"),
    Question("What is the next invoice of this customer?", (Search("lumen stud", "CUST-LUMEN"),), r"Next invoice .* of SUB-1003"),
    Question(
        "What would another price have brought?",
        (Search("another price", "What would another price have brought"),),
        r"The usage of invoiced periods is rated again.*Compute",
    ),
    Question("Who is on this plan?", (Click("Subscriptions"),), r"SUB-1003.*Team"),
    Question("What income does each plan bring?", (), r"Income by plan .*Team [\d,.]+ EUR \(\d+%"),
    Question("Move all to version 2.", (Click("Catalogue"), Click("Team")), r"Move subscriptions"),
    Question("Retire a plan.", (Click("Catalogue"), Click("Team")), r"Put on sale|Retire"),
    Question("Make a trial a part of a plan.", (Search("trial", "Give a plan a trial"),), r"Days of trial"),
    Question("Give it a name in German.", (Search("plan", "Create a plan"),), r"German|other languages|Names"),
)

ON_CALL: Final = (
    Question("What is wrong now?", (), r"Needs attention .*overdue"),
    Question("Which lock waits, and who holds it?", (Search("locks", "Current locks"),), r"Current locks"),
    Question("Which run of billing failed?", (Search("failed", "What did the last billing run do"),), r"Exit code"),
    Question(
        "What does an alert of the monitoring mean?",
        (Search("LedgerMailsWait", "LedgerMailsWait"),),
        r"LedgerMailsWait On the next working day .*deliver_mails",
    ),
    Question("Is the database safe?", (), r"last audit, .*found no violation"),
    Question("When was the last audit?", (), r"The last audit, .* ago"),
    Question("Do webhooks fail?", (Search("webhook", "Webhooks"),), r"hooks\.nimbus\.example"),
    Question("What did this request do?", (Click("Latest refusals"), Click("DATE")), r"[Rr]equest"),
    Question(
        "How many requests, and how fast?", (Search("requests", "Requests"),), r"Calls a second [\d.,]+ .*Half of the calls took"
    ),
    Question("Which key makes errors?", (Click("Latest refusals"),), r"admin:demo"),
    Question("Who logged in?", (Search("staff log", "Staff log"),), r"Logged in"),
    Question("Rotate or revoke a key.", (Click("Developers"), Click("first")), r"Rotate.*Revoke|Revoke.*Rotate"),
)

CUSTOMERS: Final = (
    asked_by_customers("What do I have?", r"8,\d{3} credits available"),
    asked_by_customers("When does it expire?", r"when they expire .*Free 400"),
    asked_by_customers("What used it?", r"History .*Spend −"),
    asked_by_customers("My invoice as PDF.", r"INV-\d+ as PDF"),
    asked_by_customers("Which plan, and until when?", r"Subscriptions .*Solo Active .* – "),
    asked_by_customers("How do I pay?", r"Pay"),
    asked_by_customers("Is it overdue?", r"Overdue 22\.61 EUR"),
    asked_by_customers("Buy more.", r"Buy credits .*10,000 tokens .*Buy"),
    asked_by_customers("Whom do I ask?", r"Questions\? Ask Nimbus Computing"),
    Question(
        "Change or cancel my plan.",
        (Click("Change or cancel"),),
        r"Move to Team .*Cancel at the end of the period, on \d+ \w+ \d{4}",
        begins_at=CUSTOMERS_PAGE,
    ),
)

QUESTIONS: Final = (*SUPPORT, *FINANCE, *PRICING, *ON_CALL, *CUSTOMERS)
