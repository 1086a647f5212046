"""The page library."""
