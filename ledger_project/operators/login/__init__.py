"""The login of operators: name, password, code."""
