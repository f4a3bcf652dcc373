"""Plant defects, one at a time, and see whether the tests that run the changed lines find them."""
