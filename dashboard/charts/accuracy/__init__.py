"""Charts of what is predicted and what was measured."""
