"""Explore: the whole space as a map, the best execution, what each choice costs."""

from dashboard import state
from dashboard.explore_view import overview

overview(state.require_exploration())
