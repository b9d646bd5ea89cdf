"""Billing's pages for operators. They show everything; the services of the REST API and the generator make the changes."""
