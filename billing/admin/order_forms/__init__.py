"""Forms about orders, in two steps: each calls the same service as the REST call of its name."""
