"""The page validation."""
