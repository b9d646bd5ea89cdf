"""Who bills what, and when: the workers of a run, and their work on one subscription."""
