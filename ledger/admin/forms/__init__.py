"""Forms, and the lists of what operators themselves make: rates, credit types, API keys."""
