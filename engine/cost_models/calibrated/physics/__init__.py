"""Time and memory of a processor and its networks, one module per effect."""
