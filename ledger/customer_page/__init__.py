"""The customer's page: one holder's credits, for anyone who has a link to it. docs/how-to/customer-page.md, docs/adr/0082."""

from ledger.customer_page.links import Link, LinkRequest, PageLink, is_served, link, link_of, read_link

__all__ = ["Link", "LinkRequest", "PageLink", "is_served", "link", "link_of", "read_link"]
