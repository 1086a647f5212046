"""Elastic: the best plan of a training job while its resources change, jobs that share a cluster, and workloads."""

from dashboard.pages.contract import NavigationGroup, Needs, Page
from dashboard.pages.elastic.link import PAGE_NAME, PARAMETERS

__all__ = ["PAGE"]

PAGE = Page(
    name=PAGE_NAME,
    title="Elastic",
    group=NavigationGroup.PLAN,
    place=5,
    help="The best plan of a training job under each limit of its resources, alone or sharing a cluster.",
    tasks=("Plan for GPUs that come and go", "Share a cluster between jobs"),
    needs=Needs.NOTHING,
    guide="elastic",
    parameters=PARAMETERS,
)
