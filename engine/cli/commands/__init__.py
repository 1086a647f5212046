"""The commands of `shardscape`, one module or package each."""
