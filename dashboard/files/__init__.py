"""Exports, reports and downloads."""
