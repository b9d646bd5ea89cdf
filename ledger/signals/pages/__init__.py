"""The operators' pages about signals."""
