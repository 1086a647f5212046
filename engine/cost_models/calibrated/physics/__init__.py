"""What takes time and memory on a processor and on its networks, one module per effect."""
