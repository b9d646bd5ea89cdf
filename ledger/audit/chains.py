"""The parts of the audit besides entries: the chains of other applications, and the rows of tables without a chain.

An application names both in `AppConfig.ready`. So one audit and one anchor cover all, and the ledger imports no application.
The anchor holds the last digest of each chain. Each row of a registered table has a digest in `ledger_register`, which triggers
write (docs/adr/0056).
"""

from dataclasses import dataclass
from typing import Final

from ledger.audit.laws import LAWS, all_laws

MARK: Final = "@"
"""The prefix of a chain's name in an anchor. No holder's id begins with it."""
UNREGISTERED: Final = "name_words,last_used_at"
"""Columns that no digest of the register covers; `ledger_register_row` in schema.sql has the same."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A set of chained documents, each found by the name of its series and its number there.

    Args:
        name: the name of the chain, and of the law under which its findings are reported.
        law: what must hold for every document, in a sentence.
        heads: SQL that returns the last document of each series: series, number, digest as hexadecimal; in the order of bytes.
        found_at: SQL that takes series (text[]) and numbers (bigint[]) and returns for each pair, in any order: series, number,
            the digest there as hexadecimal or null, and the last number of the series or null.
        broken: SQL that returns the documents whose digest is wrong: series, number, the stored digest and the right one, as
            hexadecimal.
        is_a_count: the number is the number of documents, and the digest covers all of them, so each further document changes it.
    """

    name: str
    law: str
    heads: str
    found_at: str
    broken: str
    is_a_count: bool = False


@dataclass(frozen=True, slots=True)
class RegisteredTable:
    """A table whose rows are in the register; schema.sql of its application says the same to its trigger.

    Args:
        key: the columns of the key.
        condition: SQL over a row `r` that is true for the registered rows.
        is_fixed: its rows never change, so an anchor holds the digests of its rows; otherwise it holds their keys.
        is_kept: no row is ever deleted.
    """

    name: str
    key: tuple[str, ...] = ("id",)
    condition: str = "true"
    is_fixed: bool = False
    is_kept: bool = True

    @property
    def broken(self) -> str:
        """Return the SQL of rows that differ from their registered form: the key, the found and the expected digest."""
        key = " || '/' || ".join(f"(content ->> '{column}')" for column in self.key)
        return f"""
            SELECT
                COALESCE(there.row_key, known.row_key),
                COALESCE('a row with digest ' || left(encode(there.digest, 'hex'), 16), 'no such row'),
                COALESCE(left(encode(known.digest, 'hex'), 16), 'no row')
            FROM (
                SELECT ({key}) COLLATE "C" AS row_key, sha256(convert_to(content::text, 'UTF8')) AS digest
                FROM (
                    SELECT ledger_row_form(to_jsonb(r)) - '{{{UNREGISTERED}}}'::text[] AS content
                    FROM {self.name} AS r
                    WHERE {self.condition}
                ) AS row
            ) AS there
            FULL JOIN (SELECT row_key, digest FROM ledger_register WHERE of_table = '{self.name}') AS known USING (row_key)
            WHERE there.digest IS DISTINCT FROM known.digest
        """


_CHAINS: Final[dict[str, Chain]] = {}
_TABLES: Final[dict[str, RegisteredTable]] = {
    table.name: table
    for table in (
        RegisteredTable("ledger_batch", ("confined_to", "idempotency_key"), is_fixed=True),
        RegisteredTable("ledger_rate", ("credit_type", "code", "version"), is_fixed=True),
        RegisteredTable("ledger_staff_event", is_fixed=True),
        RegisteredTable("ledger_credit_type", ("code",), is_kept=False),
    )
}


def register(chain: Chain) -> None:
    """Let the audit verify a chain, and let every anchor hold the last document of each of its series."""
    _CHAINS[chain.name] = chain


def registered() -> list[Chain]:
    """Return the chains of all applications and that of the register, sorted by name."""
    chains = _CHAINS | {"register": _register()}
    return [chains[name] for name in sorted(chains)]


# A series is a table and the day (UTC) of the first registration of rows; its number is the number of rows.
REGISTER_DAYS: Final = """
    SELECT
        of_table || ' ' || to_char(registered_on, 'YYYY-MM-DD') AS series,
        count(*) AS number,
        encode(sha256(convert_to(string_agg(
            row_key || CASE WHEN of_table IN ({fixed}) THEN ' ' || encode(digest, 'hex') ELSE '' END, E'\\n' ORDER BY row_key
        ), 'UTF8')), 'hex') AS digest
    FROM ledger_register
    WHERE of_table IN ({kept})
    GROUP BY of_table, registered_on
"""


def _register() -> Chain:
    """Return the chain of the register: for each day, no row that an anchor counted is missing or changed."""
    fixed, kept = (
        ", ".join(f"'{table.name}'" for table in registered_tables() if choose(table))
        for choose in (lambda table: table.is_fixed, lambda table: table.is_kept)
    )
    days = REGISTER_DAYS.format(fixed=fixed, kept=kept)
    return Chain(
        name="register",
        law=LAWS["register"],
        heads=f'SELECT series, number, digest FROM ({days}) AS days ORDER BY series COLLATE "C"',
        found_at=f"""
            SELECT anchored.series, anchored.number, CASE days.number WHEN anchored.number THEN days.digest END, days.number
            FROM unnest(%s::text[], %s::bigint[]) AS anchored(series, number)
            LEFT JOIN ({days}) AS days USING (series)
        """,
        broken="SELECT '', 0, '', '' WHERE false",
        is_a_count=True,
    )


def register_table(table: RegisteredTable) -> None:
    """Let the audit compare the rows of a table with the register."""
    _TABLES[table.name] = table


def registered_tables() -> list[RegisteredTable]:
    """Return the registered tables of all applications, sorted by name."""
    return [_TABLES[name] for name in sorted(_TABLES)]


def law(name: str) -> str:
    """Return the sentence of a law: one of entries and their sums, or that of a registered chain."""
    laws = all_laws()
    return laws[name] if name in laws else _CHAINS[name].law
