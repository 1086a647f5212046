"""Explore: the whole space as a map, the best execution, what each choice costs."""

from dashboard.pages.explore.axes import in_other_datatypes
from dashboard.pages.explore.view import overview
from dashboard.widgets import exploration_progress

exploration = exploration_progress.require_exploration()
overview(exploration, in_other_datatypes(exploration))
