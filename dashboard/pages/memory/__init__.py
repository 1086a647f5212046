"""The page memory."""
