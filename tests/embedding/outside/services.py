"""A FastAPI and a node service that charge their customers through a client of the ledger: they answer questions for credits."""

from typing import Any

from tests.embedding.outside.processes import call

CUSTOMERS = [f"customer-{number}" for number in range(20)]
CREDITS = 10_000
PRICE = 2
"""Of the questions that the traffic asks: a credit for each word."""


def grant_all(ledger_url: str) -> None:
    """Give each customer credits."""
    for customer in CUSTOMERS:
        assert call(f"{ledger_url}/v1/holders/{customer}/grants", f"grant-{customer}", {"amount": CREDITS})[0] == 201


def ask(service_url: str, customer: str, question: str, key: str) -> tuple[int, dict[str, Any]]:
    """Ask a service a question for a customer."""
    return call(f"{service_url}/holders/{customer}/answers", key, {"question": question})


def send_question(service_url: str, number: int) -> str:
    """Ask a question of two words; return the answer if it is no success."""
    status, answer = ask(service_url, CUSTOMERS[number % len(CUSTOMERS)], f"question {number}", f"question-{number}")
    return "" if status == 200 and answer["answer"] == f"{number} question" else f"{status} {answer}"


def assert_answers_are_charged(ledger_url: str, count: int) -> None:
    """The customers have paid for this many answers, and nothing is held any more."""
    balances = [call(f"{ledger_url}/v1/holders/{customer}/balance")[1] for customer in CUSTOMERS]
    assert sum(balance["balance"] for balance in balances) == CREDITS * len(CUSTOMERS) - PRICE * count
    assert {balance["held"] for balance in balances} == {0}
