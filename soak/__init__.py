"""What must not break, kept up for a while: `make soak`."""
