"""Programs that tests run in processes of their own, by their path: each finds the others beside it."""
