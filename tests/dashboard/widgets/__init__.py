"""Tests of what pages share."""
