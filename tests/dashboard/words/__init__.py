"""Tests of numbers, sentences and formulas as text."""
