"""Tests of the engine, by its rooms; rooms with much of their own to test have folders beside this one."""
