"""Schedules: pipeline schedules replayed event by event, two beside each other, and which is best when."""

from dashboard.pages.contract import NavigationGroup, Needs, Page, page_parameters
from dashboard.pages.schedules.link import GRID_NAME, PAGE_NAME, GridLink, SchedulesLink
from engine.questions.documents.distir import DistIRQuestion
from engine.questions.documents.schedules import ExecutionReplayQuestion, ScheduleReplayQuestion

__all__ = ["PAGE"]

PAGE = Page(
    name=PAGE_NAME,
    title="Schedules",
    group=NavigationGroup.PLAN,
    place=3,
    help="Pipeline schedules replayed: work, waiting and memory of each rank, and the best schedule.",
    tasks=("Choose a pipeline schedule", "Lower the pipeline bubble"),
    needs=Needs.SCENARIO,
    guide="schedules",
    parameters=page_parameters(PAGE_NAME, SchedulesLink)
    | page_parameters(PAGE_NAME, ScheduleReplayQuestion, only=("stages", "microbatches", "chunks", "send_mode"))
    | page_parameters(PAGE_NAME, ExecutionReplayQuestion, only=("stage_layout",))
    | page_parameters(GRID_NAME, GridLink)
    | page_parameters(GRID_NAME, DistIRQuestion, only=("bandwidth_gbps", "filtered", "memory_limit_gib")),
)
