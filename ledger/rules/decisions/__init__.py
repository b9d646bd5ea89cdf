"""What a request changes: grants, spends, refunds, holds, transfers; or why it is refused. Pure."""
