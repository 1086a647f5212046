"""Post-train: how to run reinforcement learning of a model on a number of GPUs."""

from dashboard.pages.contract import NavigationGroup, Needs, Page, page_parameters
from dashboard.pages.post_training.link import (
    ASKED_FIELDS,
    CHOSEN_FIELDS,
    JUDGE_FIELDS,
    LENGTH_FIELDS,
    PAGE_NAME,
    ROLLOUT_FIELDS,
    SPECULATION_FIELDS,
    TRAINING_FIELDS,
)
from engine.questions.documents.post_training import (
    JudgeChoices,
    PostTrainingQuestion,
    ResponseLengths,
    RolloutChoices,
    SpeculationChoices,
    TrainingChoices,
)

__all__ = ["PAGE"]

PAGE = Page(
    name=PAGE_NAME,
    title="Post-train",
    group=NavigationGroup.PLAN,
    place=1,
    help="Reinforcement learning: GPUs shared or split, step by phase, memory, idle shares, days and cost.",
    tasks=(
        "Run reinforcement learning (GRPO, DAPO, PPO)",
        "Share or split GPUs between rollouts and training",
        "Find out which phase runs out of memory",
    ),
    needs=Needs.NOTHING,
    guide="post-training",
    parameters=page_parameters(PAGE_NAME, PostTrainingQuestion, only=ASKED_FIELDS + CHOSEN_FIELDS)
    | page_parameters(PAGE_NAME, ResponseLengths, only=LENGTH_FIELDS)
    | page_parameters(PAGE_NAME, RolloutChoices, only=ROLLOUT_FIELDS)
    | page_parameters(PAGE_NAME, TrainingChoices, only=TRAINING_FIELDS)
    | page_parameters(PAGE_NAME, JudgeChoices, only=JUDGE_FIELDS)
    | page_parameters(PAGE_NAME, SpeculationChoices, only=SPECULATION_FIELDS),
)
