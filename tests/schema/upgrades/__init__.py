"""Databases of earlier releases, and their upgrade to this version with traffic running. docs/how-to/operations/upgrade.md."""
