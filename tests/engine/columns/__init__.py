"""Tests of the register and of executions as tables."""
