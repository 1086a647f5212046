"""Library: models and systems with the source of every value; edit copies, upload, use in the scenario."""

from dashboard.library_view import render

render()
