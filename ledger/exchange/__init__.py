"""Ledgers in and out: files of entries, balances and lots, and files of other systems that become entries."""
