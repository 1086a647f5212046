"""The What-if page: change the hardware, the model or the machine, and find the new best execution."""

from dashboard.pages.contract import NavigationGroup, Needs, Page

__all__ = ["PAGE"]

PAGE = Page(
    name="whatif",
    title="What-if",
    group=NavigationGroup.DECIDE,
    place=1,
    help="Change the hardware or the model and see which execution is best then.",
    needs=Needs.SCENARIO,
    guide="recipes",
    parameters={
        "whatif_changes": "changes of What-if",
        "whatif_around": "base of the studies",
        "whatif_step": "step of a change",
        "whatif_one": "parameter of the sweep",
        "whatif_x": "parameter across",
        "whatif_y": "parameter up",
        "whatif_grid": "grid",
        "whatif_batch": "batch of the sizes",
        "whatif_size_show": "view of the sizes",
        "whatif_range": "range of sizes",
        "whatif_input": "kind of input",
    },
)
