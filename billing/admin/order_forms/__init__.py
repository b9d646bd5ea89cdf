"""Forms about orders, in two steps: each calls the service of the REST call of its name."""
