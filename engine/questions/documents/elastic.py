"""Questions about elastic plans: model cards and library models under changing resources, and jobs on a cluster."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from engine.questions.documents.explorations import FiguresQuestion
from engine.questions.fields import Asked
from engine.questions.scenario_documents import LIMITS_SCHEMA, Limits
from engine.questions.verb import Document, Named
from models.documents import Accepts, Number, Text, Whole

__all__ = [
    "LONGEST_TABLE",
    "CardAccuracyQuestion",
    "CardQuestion",
    "CardsQuestion",
    "CurveQuestion",
    "ElasticQuestion",
    "JobDocument",
    "LossesQuestion",
    "MeasuredCard",
    "PhaseDocument",
    "PhasesQuestion",
    "ProfileFitQuestion",
    "ResourceLimit",
    "SplitQuestion",
    "WorkloadReplayQuestion",
]

LONGEST_TABLE: Final = 16 * 2**20
"""Longest table of a user [characters]."""
MOST_SIZES: Final = 64
MOST_PROCS: Final = 4_096

Table = Annotated[str, Text(LONGEST_TABLE, shortest=1)]
Placement = Annotated[str, Text(20_000, shortest=1)]
Bandwidth = Annotated[float, Number(0, 1e6)]
CardGiven = Annotated[
    Named,
    Asked("Model card", option_help="Model card: library name or JSON file."),
    Field(description="Model card: a name that `list_cards` has, or a whole card document."),
]
Threads = Annotated[int, Whole(1, 4_096), Asked("CPU threads", option="threads")]
BandwidthLimit = Annotated[
    Bandwidth,
    Asked("Bandwidth"),
    Field(description="Limit between nodes, 0 for none: a level of the artifact, GB/s of a GPU in physical."),
]
EveryPlan = Annotated[
    bool, Asked("Every plan", parameter="every"), Field(description="Ignore the card's table of allowed plans.")
]
Trace = Annotated[
    Table | None,
    Asked(
        "Measurements",
        option="measured",
        option_help="Measurements: a CSV file, or the name of a trace of the library; the card's by default.",
    ),
    Field(
        description="Measurements: the text of a CSV with exec_plan, placement and iteration_s, or the name of a trace "
        "of the library; by default the trace of the card's name. No time, or 0, marks a plan that does not run."
    ),
]
Variant = Annotated[
    Literal["artifact", "physical"],
    Asked("Performance model", words={"artifact": "As published", "physical": "Calibrated"}),
    Field(description="Performance model: the published one, or that of the calibrated cost model."),
]
Basis = Annotated[
    Literal["measured", "predicted"] | None,
    Asked("Times", words={"measured": "Measured", "predicted": "Predicted"}),
    Field(description="Times that count; measured by default, if there are measurements."),
]
GlobalBatch = Annotated[int, Whole(1, 10**6), Asked("Global batch", "samples", option="batch", parameter="batch")]
SystemShared = Annotated[Named | None, Asked("System")]


class CardsQuestion(Document):
    """Question for the model cards of the library."""


class ResourceLimit(Document):
    """Resources of a job."""

    placement: Placement = Field(description="GPUs on each node, such as 8888 or 16,16.")
    cpu_threads: Annotated[int, Whole(1, 4_096)] | None = Field(
        default=None, description="Of the host, per GPU; the question's by default."
    )
    bandwidth: Bandwidth | None = Field(
        default=None, description="Limit between nodes, 0 for none; the question's by default."
    )


class CardQuestion(Document):
    """Question for the best plan of a card under each of some limits."""

    card: CardGiven
    limits: Annotated[
        list[ResourceLimit],
        Asked(
            "Limits",
            option="placement",
            repeats=True,
            metavar="DIGITS",
            option_help="GPUs on each node, such as 8888; repeatable.",
        ),
    ] = Field(min_length=1, max_length=64, description="Resources: GPUs on each node, such as 8888, and more.")
    cpu_threads: Threads = Field(default=1, description="CPU threads of the host per GPU, where a limit has none.")
    bandwidth: BandwidthLimit = 0.0
    measurements: Trace = None
    variant: Variant = "artifact"
    every_plan: EveryPlan = False
    top: Annotated[int, Whole(1, 2_000)] = Field(default=8, description="Plans to list, the best first.")


class CurveQuestion(Document):
    """Question for the best throughput against one resource."""

    card: CardGiven
    over: Annotated[
        Literal["gpus", "cpu_threads", "bandwidth"],
        Asked("Resource", words={"gpus": "GPUs", "cpu_threads": "CPU threads per GPU", "bandwidth": "Bandwidth"}),
    ] = Field(default="gpus", description="The resource.")
    values: list[Annotated[float, Number(0, 1e6)]] | None = Field(
        default=None,
        min_length=1,
        max_length=1_024,
        description="Values of it: 1 to 64 GPUs, 1 to 16 threads, 0 to 10 by default.",
    )
    placement: Placement | None = Field(
        default=None, description="GPUs on each node, of curves over other resources than GPUs."
    )
    gpus: Annotated[int, Whole(1, 10**6)] | None = Field(default=None, description="GPUs, where no placement is given.")
    gpus_per_node: Annotated[int, Whole(1, 10**6)] | None = Field(
        default=None, description="Fill nodes of so many GPUs."
    )
    cpu_threads: Threads = Field(default=1, description="CPU threads of the host per GPU.")
    bandwidth: BandwidthLimit = 0.0
    variant: Variant = "artifact"
    every_plan: EveryPlan = False


class PhaseDocument(Document):
    """Resources for some time."""

    placement: Placement = Field(description="GPUs on each node; 0 where there are none.")
    cpu_threads: Annotated[int, Whole(1, 4_096)] = Field(default=1, description="Of the host, per GPU.")
    bandwidth: Bandwidth = Field(
        default=0.0, description="Limit between nodes, 0 for none: a level of the artifact, GB/s of a GPU in physical."
    )
    duration_s: Annotated[float, Number(1e-3, 1e9)]


class PhasesQuestion(Document):
    """Question for a job through phases of different resources, under the planner and under static strategies."""

    card: CardGiven = "llama7_bsz16"
    phases: Annotated[
        list[PhaseDocument] | None,
        Asked("Phases", option_help="CSV of duration_s, placement, cpu_threads, bandwidth; figure 7 by default."),
    ] = Field(default=None, min_length=1, max_length=10_000, description="Resources over time; figure 7's by default.")
    strategies: Annotated[
        list[Annotated[str, Text(200, shortest=1)]] | None,
        Asked("Static strategies", option="strategy", repeats=True, metavar="NAME|RULE"),
    ] = Field(
        default=None,
        max_length=16,
        description="Static strategies: TP+DP, TP+PP, Megatron 3D, ZeRO-Offload+GC; or rules such as n/g, g, 1. The "
        "four by default.",
    )
    pause_s: Annotated[float, Number(0, 1e6), Asked("Pause at a change", "s", parameter="pause")] = Field(
        default=0.0, description="Standstill at each change."
    )
    basis: Basis = None
    measurements: Trace = None
    variant: Variant = "artifact"
    every_plan: EveryPlan = False


class CardAccuracyQuestion(Document):
    """Question for a card's predictions next to what was measured."""

    card: CardGiven
    measurements: Trace = None
    variant: Variant = "artifact"
    cpu_threads: Threads = Field(default=4, description="CPU threads per GPU, where a measurement has none.")
    bandwidth: BandwidthLimit = 0.0
    one_node: bool = Field(default=False, description="Only placements on one node.")
    with_degrees: bool = Field(default=False, description="Only plans with parallel degrees.")


class ProfileFitQuestion(Document):
    """Question for the seven parameters of a card that fit profiled runs of one node."""

    profile: Annotated[
        Table, Asked("Profile", option_help="Profile of the library, or CSV; see the guide for its columns.")
    ] = Field(description="Name of a profile of the library, or the text of a CSV; see the guide.")
    data: Annotated[Table | None, Asked(option_help="Second file of the artifact's two; PROFILE is config.")] = Field(
        default=None, description="Second table of the artifact's two, with times; `profile` has the configurations."
    )
    pcie: Annotated[
        Annotated[float, Number(1e-6, 1e9)] | None, Asked("Bandwidth to the host", "MiB/ms", option="pcie")
    ] = Field(default=None, description="Between GPU and host; the library's for its profiles.")
    nvlink: Annotated[Annotated[float, Number(1e-6, 1e9)] | None, Asked("Bandwidth in the node", "MiB/ms")] = Field(
        default=None, description="Between GPUs of a node; the library's for its profiles."
    )
    starts: Annotated[int, Whole(1, 1_000)] = Field(default=12, description="Starts of the search.")
    held_out: Annotated[bool, Asked(option="hold-out")] = Field(
        default=False, description="Also fit with each run left out in turn."
    )


class LossesQuestion(Document):
    """Question for the differences between losses of one training under several plans."""

    losses: Annotated[
        Table | None, Asked("Losses", option_help="CSV of minibatch, loss_...; figure 9's by default.")
    ] = Field(
        default=None, description="Text of a CSV with minibatch and a column loss_... per run; figure 9's by default."
    )
    against: Annotated[str, Text(100, shortest=1), Asked("Compared with")] = Field(
        default="181", description="The run that others are compared with."
    )


class JobDocument(Document):
    """A job: of a card, or of a model of the library with its batch."""

    card: CardGiven | None = None
    model: Named | None = Field(default=None, description="Instead: a model of the library, with global_batch.")
    global_batch: Annotated[int, Whole(1, 10**6)] | None = None
    name: Annotated[str, Text(100, shortest=1)] | None = None
    guarantee: Annotated[float, Number(0, 1e12)] | None = Field(
        default=None, description="Throughput that it must reach [samples/s]; null for best effort."
    )
    measurements: Trace = None


class SplitQuestion(Document):
    """Question for the split of GPUs among jobs."""

    jobs: Annotated[
        list[JobDocument], Asked("Jobs", repeats=True, option_help="Model cards, or one CSV file of jobs.")
    ] = Field(min_length=1, max_length=200, description="Jobs: model cards, or models of the library.")
    gpus: Annotated[int, Whole(1, 256), Asked("GPUs", parameter="shared")] = Field(
        description="GPUs that the jobs share."
    )
    system: SystemShared = Field(default=None, description="System with the GPUs, for models of the library.")
    basis: Basis = None
    cpu_threads: Threads = Field(default=1, description="CPU threads of the host per GPU.")
    variant: Variant = "artifact"


class MeasuredCard(Document):
    """A model card with its measurements."""

    card: CardGiven
    measurements: Trace = None


class WorkloadReplayQuestion(Document):
    """Question for a workload of jobs on a cluster over time."""

    workload: Annotated[Table, Asked("Workload", option_help="Published workload, or CSV of jobs; see the guide.")] = (
        Field(
            default="base",
            description="base, bp, mt, naive, today, or the text of a CSV with name, submission_time, application, "
            "num_gpus, exec_plan, steps or duration, is_sla.",
        )
    )
    cluster: Annotated[str, Text(600, shortest=1), Asked("Cluster", metavar="NxG")] = Field(
        default="8x8", description="Nodes and GPUs of each."
    )
    policies: Annotated[
        list[Literal["artifact", "published", "first-come", "equal-share"]] | None,
        Asked("Policies", option="policy", repeats=True),
    ] = Field(default=None, min_length=1, max_length=4, description="All by default.")
    pause_s: Annotated[float, Number(0, 86_400), Asked("Pause at a change", "s", parameter="stop")] = Field(
        default=260.0, description="Downtime at start and at each reconfiguration."
    )
    interval_s: Annotated[float, Number(1e-3, 1e6), Asked("Length of a round", "s")] = Field(
        default=60.0, description="Length of a round of the scheduler."
    )
    cards: Annotated[
        list[MeasuredCard] | None,
        Asked(
            "Cards",
            option="card",
            repeats=True,
            metavar="CARD=CSV",
            option_help="A model of your own: its card and measurements; repeatable.",
        ),
    ] = Field(
        default=None,
        max_length=64,
        description="Cards with measurements that the workload names, besides the library's.",
    )
    system: SystemShared = Field(
        default=None,
        description="System with the GPUs for models of the library in the workload, such as llama-3-8B*64.",
    )
    models: Annotated[dict[str, Named], Accepts("an object with models by name")] = Field(
        default_factory=dict, max_length=32, description="Models that the workload names and the library lacks."
    )
    jobs: bool = Field(default=False, description="Whether to list every job.")


class ElasticQuestion(FiguresQuestion):
    """Question for the best plan of a model by number of GPUs, through phases, and after a loss of nodes."""

    model: Annotated[Named, Asked("Model")] = Field(
        description="Model: a name that `list_models` has, or a whole model document."
    )
    system: Annotated[Named, Asked("System")] = Field(
        description="System: a name that `list_systems` has; its innermost network is a node."
    )
    global_batch: GlobalBatch = Field(description="Samples of an iteration, the same at every size.")
    gpus: Annotated[list[Annotated[int, Whole(1, MOST_PROCS)]] | None, Asked("GPUs")] = Field(
        default=None, min_length=1, max_length=MOST_SIZES, description="Sizes; 1, 2, 4, ... 64 by default."
    )
    placement: Placement | None = Field(
        default=None, description="Instead of sizes: GPUs on each node, such as 8888; with lost nodes, before the loss."
    )
    phases: Annotated[
        list[PhaseDocument] | None, Asked("Phases", option_help="CSV of duration_s, placement, bandwidth, instead.")
    ] = Field(default=None, min_length=1, max_length=10_000, description="Plan these phases, too: resources over time.")
    lost_nodes: Annotated[
        Annotated[int, Whole(1, 10_000)] | None, Asked("Lost nodes", option="lose", parameter="lost")
    ] = Field(default=None, description="Nodes that fail at once: compare the ways to continue.")
    spare_nodes: Annotated[int, Whole(0, 10_000), Asked("Spare nodes", option="spares", parameter="spares")] = Field(
        default=0, description="Idle nodes kept in reserve."
    )
    repair_s: Annotated[float, Number(1e-3, 1e12), Asked("Repair", "s", parameter="repair", parameter_unit="min")] = (
        Field(default=3600.0, description="Until lost nodes are back.")
    )
    restart_s: Annotated[float, Number(0, 1e12), Asked("Restart", "s")] = Field(
        default=260.0, description="Downtime of a restart."
    )
    datatype: str = Field(default="bfloat16", description="Datatype of the matrix arithmetic.")
    limits: Limits = Field(
        default_factory=dict, description="What fields may be, as in a scenario.", json_schema_extra=LIMITS_SCHEMA
    )
