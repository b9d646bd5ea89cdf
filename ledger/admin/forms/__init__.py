"""Forms, and the lists of what operators make: rates, credit types, API keys."""
