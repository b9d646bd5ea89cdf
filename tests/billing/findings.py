"""What the audit finds by some of its laws; all of them take longer than many a test does."""

from billing.auditing import consistency


def findings_of(*words: str) -> list[str]:
    """The findings, in words, of the laws in whose names one of the words occurs. The other laws are not looked at."""
    laws = [(law, found) for law, found in consistency.laws() if any(word in law for word in words)]
    assert laws, f"no law is called after {words}"
    return [what for _, found in laws for what in found]
