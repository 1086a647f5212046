"""Tests of the frame around the pages, of the server, and of what leans on libraries."""
