"""The operators' pages of packs, purchases, payment intents and top-ups."""
