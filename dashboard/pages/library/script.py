"""Library: models and systems with the source of every value; edit copies, upload, use in the scenario."""

from dashboard.pages.library.view import render

render()
