"""Executions that frameworks run: the rules of each, which restrict a space before anything is searched."""
