"""The page execution."""
