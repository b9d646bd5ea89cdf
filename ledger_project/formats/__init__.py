"""How Django writes dates and times on pages."""
