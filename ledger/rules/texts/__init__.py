"""What people read of entries and refusals: amounts in units, sentences, explanations of a balance. Pure."""
