"""Memory: where it goes against the capacity of each tier, and what would fit if."""

from dashboard.link import state
from dashboard.pages.memory.view import render

render(state.require_exploration(), state.theme_mode())
