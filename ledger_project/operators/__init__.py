"""The people who use the admin: their login, their roles, and the look of their pages."""
