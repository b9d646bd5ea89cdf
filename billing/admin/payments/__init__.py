"""Pages of packs and purchases."""
