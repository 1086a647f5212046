"""The page scenarios."""
