"""Who bills what, and when: the workers of a run, and what they do for one subscription."""
