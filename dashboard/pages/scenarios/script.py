"""Scenarios: what was saved and explored on this server; reopen, share, compare, rename, delete."""

from dashboard.pages.scenarios.view import render

render()
