"""What only a Citus cluster needs: its functions replace those that `on_cluster` marks. See docs/adr/0043, 0045 and 0059."""
