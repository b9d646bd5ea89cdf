"""What `manage.py serve` is made of."""
