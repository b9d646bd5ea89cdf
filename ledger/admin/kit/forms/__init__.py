"""Forms that write: their fields come from the declaration of a request, and they have two steps."""
