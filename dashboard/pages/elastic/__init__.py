"""Elastic: the best plan of a training job while its resources change, by model cards with measurements."""

from dashboard.pages.contract import Group, Needs, Page

__all__ = ["PAGE"]

PAGE = Page(
    name="elastic",
    title="Elastic",
    group=Group.PLAN,
    place=3,
    help="The best plan of a training job under each limit of GPUs, CPU threads and bandwidth.",
    needs=Needs.NOTHING,
    guide="elastic",
    parameters={
        "elastic_card": "model card", "elastic_phases": "phases", "elastic_pause": "pause at a change",
        "elastic_over": "resource", "elastic_variant": "performance model", "elastic_phase": "phase to look at",
        "elastic_basis": "kind of times",
    },
)  # fmt: skip
