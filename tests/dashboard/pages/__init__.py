"""Tests of the pages, one module or more each, and of what all of them keep."""
