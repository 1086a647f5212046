"""Tests of exploring, and of what is found without."""
