"""The part of the ledger for a Citus cluster: its functions replace those that `on_cluster` marks. See docs/adr/0043."""
