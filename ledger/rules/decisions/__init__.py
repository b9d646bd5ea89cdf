"""The change that a request makes (grants, spends, refunds, holds, transfers), or why it is refused. Pure."""
