"""What a block and a step compute, move and hold, one module per effect; none knows rows or spaces."""
