"""Charts: data in, Plotly figure out. No Streamlit, no queries; every function is pure.

Every chart function returns a `Chart`: the figure and a sentence that states its finding, meant for `alt=`.
Show it with `dashboard.widgets.chart.show`.
"""

from dashboard.charts.elements.template import CONFIG, Chart

__all__ = ["CONFIG", "Chart"]
