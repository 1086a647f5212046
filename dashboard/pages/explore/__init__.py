"""The page explore."""
