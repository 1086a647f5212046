"""The page serving."""
