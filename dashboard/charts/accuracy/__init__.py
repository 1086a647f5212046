"""Charts of predictions against measurements."""
