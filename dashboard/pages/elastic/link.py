"""Parameters of the Elastic page in links that are not fields of its questions."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import Field

from dashboard.pages.contract import page_parameters
from engine.questions.documents.elastic import (
    CardQuestion,
    CurveQuestion,
    ElasticQuestion,
    LossesQuestion,
    PhasesQuestion,
    ProfileFitQuestion,
    SplitQuestion,
    WorkloadReplayQuestion,
)
from engine.questions.fields import Asked
from engine.questions.verb import Document
from models.documents import Whole

__all__ = [
    "MOST_GPUS",
    "OWN",
    "PAGE_NAME",
    "PARAMETERS",
    "PHASES_TEXT",
    "RULE_TEXT",
    "STEPS_TEXT",
    "ElasticLink",
    "FitLink",
    "LossesLink",
    "SeveralJobsLink",
    "WorkloadLink",
]

PAGE_NAME: Final = "elastic"
OWN: Final = "own"
"""Choice of a card, a table or a profile of the user."""
MOST_GPUS: Final = 2_048
"""GPUs of a library model at most."""
PHASES_TEXT: Final = re.compile(r"[\d@xb., ;]{1,400}")
RULE_TEXT: Final = re.compile(r"[\w\-+*/, ]{1,60}", re.ASCII)
STEPS_TEXT: Final = re.compile(r"[\d@., ;]{1,300}")


class ElasticLink(Document):
    """Subject of the page, and inputs of its questions about one job and a library model."""

    show: Annotated[
        Literal["job", "model", "several", "workload", "accuracy", "fit", "losses"],
        Asked(
            "Subject",
            words={
                "job": "One job",
                "model": "Library model",
                "several": "Several jobs",
                "workload": "Workload",
                "accuracy": "Against measurements",
                "fit": "Fit",
                "losses": "Losses",
            },
        ),
    ] = "job"
    card: Annotated[str, Asked("Model card")] = "llama7_bsz16"
    own: Annotated[str, Asked("Own model card")] = ""
    phases: Annotated[str, Asked("Phases")] = Field(
        default="30@8888x2, 30@4444x2, 30@4x2, 30@1x2, 30@1x4",
        description="Separated by commas. 30@8888x2 is half an hour on four nodes with eight GPUs each and two CPU "
        "threads per GPU; 5@0x1 is five minutes without any GPU. b12.5 behind it limits the bandwidth between nodes, "
        "in GB/s of a GPU by the calibrated model; as published any limit is 2 MiB/ms.",
    )
    rule: Annotated[str, Asked("Static strategy")] = Field(
        default="",
        description="n is all GPUs, g those of a node, w nodes: n/g, g, 1 is tensor parallelism inside nodes and a "
        "pipeline across them. Or one plan for all phases, such as zero-dp+ga.",
    )
    phase: Annotated[str, Asked("Phase", parameter="phase")] = ""
    beside: Annotated[str, Asked("Compare with")] = Field(
        default="", description="Gain of each job from more of the resource."
    )
    runs: Annotated[
        Literal["all", "one", "3d"],
        Asked("Runs", words={"all": "All runs", "one": "On one node", "3d": "With degrees"}),
    ] = "all"
    most_gpus: Annotated[int, Whole(1, MOST_GPUS), Asked("GPUs", parameter="gpus")] = Field(
        default=64, description="The most that the job may get."
    )
    steps: Annotated[str, Asked("Phases of the model")] = Field(
        default="", description="Separated by commas. 60@56 is an hour on 56 GPUs, 5@0 five minutes without any."
    )


class SeveralJobsLink(Document):
    """Jobs that share a cluster as text, and the one that is shown."""

    of: Annotated[
        Literal["cards", "models"], Asked("Kind of jobs", words={"cards": "Model cards", "models": "Library models"})
    ] = "cards"
    jobs: Annotated[str, Asked("Jobs")] = ""
    curve: Annotated[str, Asked("Job")] = ""


class WorkloadLink(Document):
    """Workload, its cluster, and the policy that is shown."""

    workload: Annotated[
        Literal["base", "mt", "bp", "naive", "today", "own"],
        Asked(
            "Workload",
            words={
                "base": "406 jobs, base",
                "mt": "406 jobs, half guaranteed",
                "bp": "406 jobs, best plans asked for",
                "naive": "10 jobs",
                "today": "16 jobs of today’s models",
                "own": "My workload",
            },
        ),
    ] = "base"
    nodes: Annotated[int, Whole(1, 128), Asked("Nodes")] = Field(default=8, description="Of the cluster.")
    node: Annotated[int, Whole(1, 9), Asked("GPUs of each")] = Field(default=8, description="Of a node.")
    policy: Annotated[str, Asked("Policy")] = ""
    own_workload: Annotated[str, Asked("Own workload")] = ""


class FitLink(Document):
    """Profile that is fitted, and the card that takes the parameters."""

    profile: Annotated[str, Asked("Profile")] = ""
    onto: Annotated[str, Asked("On the card")] = ""
    own_profile: Annotated[str, Asked("Own profile")] = ""


class LossesLink(Document):
    """Losses that are compared, and the figure that is shown."""

    losses: Annotated[
        Literal["figure_9", "own"], Asked("Runs", words={"figure_9": "LLaMA-2-7B (figure 9)", "own": "My runs"})
    ] = "figure_9"
    loss_shown: Annotated[
        Literal["differences", "losses"],
        Asked("Losses or differences", words={"differences": "Differences", "losses": "Losses"}),
    ] = "differences"
    own_losses: Annotated[str, Asked("Own losses")] = ""


PARAMETERS: Final = {
    **page_parameters(PAGE_NAME, ElasticLink, SeveralJobsLink, WorkloadLink, FitLink, LossesLink),
    **page_parameters(PAGE_NAME, PhasesQuestion, only=("variant", "pause_s", "basis")),
    **page_parameters(PAGE_NAME, CurveQuestion, only=("over",)),
    **page_parameters(PAGE_NAME, CardQuestion, only=("every_plan",)),
    **page_parameters(
        PAGE_NAME, ElasticQuestion, only=("model", "system", "global_batch", "lost_nodes", "spare_nodes", "repair_s")
    ),
    **page_parameters(PAGE_NAME, SplitQuestion, only=("gpus",)),
    **page_parameters(PAGE_NAME, WorkloadReplayQuestion, only=("pause_s",)),
    **page_parameters(PAGE_NAME, ProfileFitQuestion, only=("pcie", "nvlink")),
    **page_parameters(PAGE_NAME, LossesQuestion, only=("against",)),
}
"""Label of each parameter of the page in links."""
