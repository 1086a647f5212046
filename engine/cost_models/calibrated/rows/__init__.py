"""Cells of a calibrated space made ready: schedule points, memory requirements, rows, and their figures."""
