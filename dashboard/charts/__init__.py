"""Charts: data in, drawings out, as Plotly takes them. No Streamlit, no queries; every function is pure.

Every chart function returns a `Chart`: the drawing and a sentence that states its finding, meant for `alt=`.
Show it with `dashboard.widgets.chart.show`.
"""

from dashboard.charts.elements.template import CONFIG, Chart

__all__ = ["CONFIG", "Chart"]
