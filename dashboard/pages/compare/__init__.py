"""The page compare."""
