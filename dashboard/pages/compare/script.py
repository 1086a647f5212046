"""Compare: two to four scenarios side by side."""

from dashboard.pages.compare.view import render

render()
