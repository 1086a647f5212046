"""Pareto: the executions that no other beats in two or three figures at once."""

from dashboard.pages.contract import NavigationGroup, Needs, Page

__all__ = ["PAGE"]

PAGE = Page(
    name="pareto",
    title="Pareto",
    group=NavigationGroup.EXPLORE,
    place=4,
    help="The executions that no other beats in two or three figures at once.",
    needs=Needs.EXPLORATION,
    guide="reading-the-map",
    parameters={
        "pareto_x": "axis across",
        "pareto_y": "axis up",
        "pareto_z": "third figure",
        "pareto_xscale": "scale across",
        "pareto_yscale": "scale up",
        "pareto_xbetter": "direction across",
        "pareto_ybetter": "direction up",
        "pareto_zbetter": "direction of the third figure",
        "pareto_close": "switch for close executions",
        "pareto_columns": "switch for all columns",
        "pareto_b": "second scenario",
        "pareto_c": "third scenario",
        "pareto_d": "fourth scenario",
    },
)
