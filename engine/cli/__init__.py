"""The command `shardscape`: one module per command, and what they share."""
