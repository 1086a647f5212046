"""Memory: where it goes against the capacity of each tier, and what would fit if."""

from dashboard import state
from dashboard.memory_view import render

render(state.require_exploration(), state.theme_mode())
