"""The calls about money that comes in: packs and purchases."""
