"""Explore: the whole space as a map, the best execution, what each choice costs."""

from dashboard import state
from dashboard.explore_axes import in_other_datatypes
from dashboard.explore_view import overview

exploration = state.require_exploration()
overview(exploration, in_other_datatypes(exploration))
