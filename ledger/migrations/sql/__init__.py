"""The SQL objects of each migration, as files beside it. Frozen once released: a later change is a new file."""

from pathlib import Path


def read(name: str) -> str:
    """The text of a .sql file of this folder."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")
