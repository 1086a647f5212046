"""Operations, traffic and memory of a block and a step, one module per effect, independent of rows and spaces."""
