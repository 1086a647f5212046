"""The command `shardscape`: one module per command, and shared modules."""
