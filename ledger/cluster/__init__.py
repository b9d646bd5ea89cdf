"""The part of the ledger for a Citus cluster: its functions replace those that `on_cluster` marks. See adr/0043, 0045, 0059."""
