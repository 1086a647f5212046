"""Tests of reports, exports and downloads."""
