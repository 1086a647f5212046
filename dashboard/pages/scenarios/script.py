"""Scenarios: what was saved and explored on this server; reopen, share, compare, rename, delete."""

from dashboard.scenarios_view import render

render()
