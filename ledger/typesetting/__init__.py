"""The design that all documents share, and the compiler that sets them. Knows no credits and no money."""
