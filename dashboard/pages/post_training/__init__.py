"""Post-train: how to run reinforcement learning or fine-tuning of a model on a number of GPUs."""

from dashboard.pages.contract import NavigationGroup, Needs, Page, page_parameters
from dashboard.pages.post_training.link import (
    ASKED_FIELDS,
    LENGTH_FIELDS,
    PAGE_NAME,
    ROLLOUT_FIELDS,
    SAMPLE_FIELDS,
    TUNING_FIELDS,
    PostTrainingLink,
)
from engine.questions.documents.fine_tuning import DataSetLengths, FineTuningQuestion
from engine.questions.documents.post_training import PostTrainingQuestion, ResponseLengths, RolloutChoices

__all__ = ["PAGE"]

PAGE = Page(
    name=PAGE_NAME,
    title="Post-train",
    group=NavigationGroup.PLAN,
    place=1,
    help="Reinforcement learning and fine-tuning: GPUs, layouts, memory, time and cost.",
    tasks=(
        "Run reinforcement learning (GRPO, DAPO, PPO)",
        "Share or split GPUs between rollouts and training",
        "Find out which phase runs out of memory",
        "Fine-tune a model on a data set (SFT, LoRA, QLoRA)",
        "Compare LoRA with full fine-tuning: memory, hours, cost",
    ),
    needs=Needs.NOTHING,
    guide="post-training",
    parameters=page_parameters(PAGE_NAME, PostTrainingLink)
    | page_parameters(PAGE_NAME, FineTuningQuestion, only=TUNING_FIELDS)
    | page_parameters(PAGE_NAME, DataSetLengths, only=SAMPLE_FIELDS)
    | page_parameters(PAGE_NAME, PostTrainingQuestion, only=ASKED_FIELDS)
    | page_parameters(PAGE_NAME, ResponseLengths, only=LENGTH_FIELDS)
    | page_parameters(PAGE_NAME, RolloutChoices, only=ROLLOUT_FIELDS),
)
