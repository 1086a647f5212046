"""Layer-wise: layers of a profile or a model divided into pipeline stages with replicas on the devices of a cluster."""

from dashboard.pages.contract import NavigationGroup, Needs, Page, page_parameters
from dashboard.pages.layerwise.link import PAGE_NAME, LayerwiseLink
from engine.questions.documents.layers import LayersQuestion

__all__ = ["PAGE"]

PAGE = Page(
    name=PAGE_NAME,
    title="Layer-wise",
    group=NavigationGroup.PLAN,
    place=4,
    help="Layers divided into pipeline stages with replicas, each on its devices, by DAPPLE's planner.",
    tasks=("Divide layers into pipeline stages",),
    needs=Needs.NOTHING,
    guide="layer-wise",
    parameters=page_parameters(
        PAGE_NAME, LayersQuestion, LayerwiseLink, leave_out=("systems", "datatype", "profile_name", "machines")
    ),
)
