"""What travels between processors: collectives, the networks that carry each group, and what is left unhidden."""
