"""Tables of executions: their fields, limits on them, and the reasons for which one cannot run."""
