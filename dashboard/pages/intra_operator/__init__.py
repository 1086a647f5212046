"""Intra-operator: how contractions inside layers are split over the devices of a mesh, as CFP and Alpa search it."""

from dashboard.pages.contract import NavigationGroup, Needs, Page, page_parameters
from dashboard.pages.intra_operator.link import PAGE_NAME, IntraOperatorLink
from engine.questions.documents.operators import OperatorsQuestion

__all__ = ["PAGE"]

PAGE = Page(
    name=PAGE_NAME,
    title="Intra-operator",
    group=NavigationGroup.PLAN,
    place=6,
    help="How the products inside layers are split over devices: every vector of strategies, and the best.",
    tasks=("Split products inside layers over devices",),
    needs=Needs.NOTHING,
    guide="intra-operator",
    parameters=page_parameters(
        PAGE_NAME,
        OperatorsQuestion,
        IntraOperatorLink,
        leave_out=("tiers", "outer", "gradient_bytes", "zero", "fsdp", "annotations", "top"),
    ),
)
