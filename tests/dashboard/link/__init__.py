"""Tests of links and of files that people keep."""
