"""What every document is made with: the look that they share, and the compiler that sets it. Knows no credits and no money."""
