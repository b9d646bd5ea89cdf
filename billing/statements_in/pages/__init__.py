"""The operators' pages of bank receipts."""
