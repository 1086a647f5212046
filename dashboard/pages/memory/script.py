"""Memory: where it goes against the capacity of each tier, and what would fit if."""

from dashboard.link import state
from dashboard.pages.memory.view import render
from dashboard.widgets import exploration_progress

render(exploration_progress.require_exploration(), state.theme_mode())
