"""Compare: two to four scenarios side by side."""

from dashboard.compare_view import render

render()
