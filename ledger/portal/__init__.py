"""The customer's page: one holder's credits, for anyone who has a link to it. docs/how-to/customer-page.md."""
