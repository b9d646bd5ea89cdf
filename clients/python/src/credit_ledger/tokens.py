"""The price of a language model's tokens, in credits."""

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
        """Return the price of a call, rounded up once to whole credits, as with the ledger's rates."""
        return -(-(prompt * self.prompt + completion * self.completion) // PER)

    def estimate(self, prompt: int, most: int) -> int:
        """Return how many credits to hold for a prompt and an answer of at most `most` tokens: at least 1, as every hold.

        0 if both prices are 0: then there is nothing to hold.
        """
        return max(1, self.credits(prompt, most)) if self.prompt or self.completion else 0
