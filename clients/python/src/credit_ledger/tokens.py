"""The tokens of a call to a language model, as quantities of a rate."""

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """What a call used. `prompt` contains `cached` and `cache_write`, and `completion` contains `reasoning`."""

    prompt: int
    completion: int
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0

    def quantities(self, components: Collection[str]) -> dict[str, int]:
        """Return the quantities of a rate: each token once, in the most special component that the rate has for it.

        Args:
            components: the rate's: `input` and `output`, and perhaps `cached`, `cache_write` and `reasoning`.
        """
        special = {"cached": self.cached, "cache_write": self.cache_write, "reasoning": self.reasoning}
        priced = {name: count for name, count in special.items() if name in components}
        of_prompt = priced.get("cached", 0) + priced.get("cache_write", 0)
        rest = {"input": max(0, self.prompt - of_prompt), "output": max(0, self.completion - priced.get("reasoning", 0))}
        return rest | priced
