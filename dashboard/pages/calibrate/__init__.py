"""The page calibrate."""
