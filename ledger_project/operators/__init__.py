"""The people who use the admin: their login, their roles, and the design of their pages."""
