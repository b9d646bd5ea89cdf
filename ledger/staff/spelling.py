"""Words that people type to find something: folded, and with at most one typo. Pure."""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Final

LETTERS: Final = "abcdefghijklmnopqrstuvwxyz0123456789"
SHORTEST_WITH_TYPO: Final = 4
LONGEST_WITH_TYPO: Final = 24
FILLERS: Final = frozenset({"a", "an", "the", "of", "to", "for", "my", "in", "do", "i", "how"})


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case, without accents, punctuation and words that say nothing."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    words = re.findall(r"[a-z0-9]+", "".join(sign for sign in plain if not unicodedata.combining(sign)))
    return [word for word in words if word not in FILLERS]


def misspellings(word: str) -> list[str]:
    """Return all words with one letter more, less, changed, or swapped with the next; none for a short or a very long word."""
    if not SHORTEST_WITH_TYPO <= len(word) <= LONGEST_WITH_TYPO:
        return []
    return list(dict.fromkeys(each for each in _misspell_word(word) if each != word))


def _misspell_word(word: str) -> Iterator[str]:
    for place in range(len(word) + 1):
        before, after = word[:place], word[place:]
        yield from (before + letter + after for letter in LETTERS)
        if after:
            yield before + after[1:]
            yield from (before + letter + after[1:] for letter in LETTERS)
        if len(after) > 1:
            yield before + after[1] + after[0] + after[2:]


def begins(typed: Iterable[str], words: Iterable[str]) -> bool:
    """Return whether each typed word begins one of the words."""
    known = list(words)
    return all(any(word.startswith(each) for word in known) for each in typed)


def resembles(typed: Iterable[str], words: Iterable[str]) -> bool:
    """Return whether each typed word begins one of the words, or is one of them with one typo."""
    known = list(words)
    return all(any(word.startswith(each) for word in known) or not set(misspellings(each)).isdisjoint(known) for each in typed)
