"""Explore: the whole space as a map, the best execution, what each choice costs."""

from dashboard.pages.contract import NavigationGroup, Needs, Page

__all__ = ["PAGE"]

PAGE = Page(
    name="explore",
    title="Map",
    group=NavigationGroup.EXPLORE,
    place=1,
    help="Every execution of one model on one system, as a map of tensor by pipeline parallel.",
    needs=Needs.EXPLORATION,
    guide="reading-the-map",
    parameters={
        "metric": "metric",
        "download": "choice of executions to download",
        "map_x": "axis across",
        "map_y": "axis up",
        "map_facet": "field with a map per value",
        "map_at": "cell",
        "map_domain": "colours",
        "map_table": "switch to a table",
        "recommended_headroom": "memory kept free",
        "recommended_offload": "whether offload may be recommended",
        "recommended_unmeasured": "whether what was never measured may be recommended",
    },
)
