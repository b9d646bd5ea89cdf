"""Each application that can be left out is left out once: the tests of what is left pass."""
