"""The page results."""
