"""How an operator logs in: name, password, code."""
