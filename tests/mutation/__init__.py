"""`make mutants`: does the test suite notice a fault? Puts small faults into the product, one at a time, and runs the tests that
reach them. docs/reference/mutants.md says how to read the result.
"""
