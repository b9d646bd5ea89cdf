"""Who takes money: the interface of a provider, and its implementations."""
