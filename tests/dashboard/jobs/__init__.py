"""Tests of the board of jobs and of the workers beside the server."""
