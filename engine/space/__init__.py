"""The space of a scenario: every execution, numbered, cell by cell."""
