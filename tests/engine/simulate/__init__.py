"""Tests of schedules replayed, and of DistIR."""
