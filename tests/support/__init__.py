"""What test modules share: oracles, random inputs, and processes to kill. `programs` are run as processes of their own."""
