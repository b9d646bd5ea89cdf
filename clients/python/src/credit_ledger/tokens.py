"""What tokens of a language model cost, in credits."""

from dataclasses import dataclass

PER = 1000
"""Prices are for this many tokens."""


@dataclass(frozen=True)
class TokenPrice:
    """Credits for 1,000 tokens, of the prompt and of the answer."""

    prompt: int
    completion: int

    def __post_init__(self) -> None:
        if self.prompt < 0 or self.completion < 0:
            raise ValueError("A price is 0 or more.")

    def credits(self, prompt: int, completion: int) -> int:
        """Return what a call costs; a fraction of a credit is rounded up, once for the call, as the ledger's rates do."""
        return -(-(prompt * self.prompt + completion * self.completion) // PER)

    def estimate(self, prompt: int, most: int) -> int:
        """Return what to hold for a prompt and an answer of at most so many tokens: 1 or more, because a hold of 0 is none."""
        return max(1, self.credits(prompt, most))
