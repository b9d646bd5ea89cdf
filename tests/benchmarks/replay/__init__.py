"""What `make replay` is made of: a recorded trace, played over HTTP, audited and invoiced."""
