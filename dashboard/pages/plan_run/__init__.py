"""Plan a run: how many GPUs of which system train a model by a deadline or within a budget, and at what cost."""

from dashboard.link.run_phases import RunPhasesLink
from dashboard.pages.contract import NavigationGroup, Needs, Page, page_parameters
from dashboard.pages.plan_run.link import PAGE_NAME, PlanRunLink
from engine.questions.documents.cost import PlanRunQuestion

__all__ = ["PAGE"]

PAGE = Page(
    name=PAGE_NAME,
    title="Plan a run",
    group=NavigationGroup.PLAN,
    place=0,
    help="How many GPUs of which system train a model by a deadline or within a budget, and what it costs.",
    tasks=(
        "Train by a deadline or within a budget",
        "Find out what a training run costs",
        "Count GPUs for so many tokens",
        "Plan pre-training, fine-tuning, RL and serving",
    ),
    needs=Needs.NOTHING,
    guide="plan-a-run",
    parameters=page_parameters(
        PAGE_NAME, PlanRunQuestion, only=("model", "max_batch_size", "datatype", "figures_of", "room_for_error")
    )
    | page_parameters(PAGE_NAME, PlanRunLink, RunPhasesLink),
)
