"""Schema of a model card: a model's size, its forward time, seven fitted parameters, two bandwidths, and its allowed
plans.

Symbols in brackets come from the artifact of Morphling/Rubick (AlibabaPAI/reconfigurable-dl-scheduler, Apache-2.0),
whose keys are accepted too.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from engine.planners.contract import PlanError
from engine.planners.elastic.placements import gpus_on_nodes
from engine.planners.elastic.plan_names import parse_plan
from models.documents import Accepts, DocumentError, Number, Text, Whole

__all__ = [
    "PARAMETERS",
    "AtomBatchLimits",
    "CardError",
    "Environment",
    "ModelCard",
    "PerformanceParameters",
]

PARAMETERS: Final = ("k_bwd", "k_sync", "k_opt", "k_os_offload", "k_const", "k_off", "k_swap")
"""The seven parameters that a fit finds, in the artifact's order."""


class CardError(PlanError, DocumentError):
    """A model card that cannot be used; the message is one sentence for the person who wrote it."""


class _CardDocument(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True)


class PerformanceParameters(_CardDocument):
    """The seven fitted parameters."""

    k_bwd: Annotated[float, Number(0, 1e6)]
    """Backward time over forward time."""
    k_sync: Annotated[float, Number(1e-3, 1e9)]
    """Exponent of the p-norm that overlaps gradient exchange with backward: 1 means no overlap, large values perfect
    overlap."""
    k_opt: Annotated[float, Number(0, 1e6)]
    """Optimizer on the GPU [ms per Mi-parameters]."""
    k_os_offload: Annotated[float, Number(0, 1e6)]
    """Optimizer on the CPU [ms x threads per Mi-parameters]."""
    k_const: Annotated[float, Number(0, 1e9)]
    """Constant of every iteration [ms]."""
    k_off: Annotated[float, Number(0, 1e9)]
    """Constant of copying gradients to the host [ms]."""
    k_swap: Annotated[float, Number(0, 1e9)]
    """Constant of the optimizer step [ms]."""

    def vector(self) -> tuple[float, ...]:
        """Returns the seven values in the order of `PARAMETERS`."""
        return tuple(float(getattr(self, name)) for name in PARAMETERS)


class Environment(_CardDocument):
    """Bandwidths of the machines on which the card's times were taken [MiB/ms, about GiB/s]."""

    pcie: Annotated[float, Number(1e-6, 1e6)] = Field(validation_alias=AliasChoices("pcie", "B_pcie"))
    """Between GPU and host (B_pcie)."""
    nvlink: Annotated[float, Number(1e-6, 1e6)] = Field(validation_alias=AliasChoices("nvlink", "B_nvlink"))
    """Between GPUs of one node (B_nvlink)."""


class AtomBatchLimits(_CardDocument):
    """Most samples that one GPU holds at once [samples]; 0 if such a plan cannot run."""

    recompute: Annotated[int, Whole(0, 10**9)] = Field(default=0, validation_alias=AliasChoices("recompute", "gc"))
    """With recomputation (gc)."""
    other: Annotated[int, Whole(0, 10**9)] = 0
    """Without (other)."""


class AtomBatches(_CardDocument):
    """Limits for each strategy of the data-parallel family: the only memory model that the artifact has."""

    dp: AtomBatchLimits = Field(default=AtomBatchLimits(), validation_alias=AliasChoices("dp", "DP"))
    zero_dp: AtomBatchLimits = Field(default=AtomBatchLimits(), validation_alias=AliasChoices("zero_dp", "zero-dp"))
    zero_offload: AtomBatchLimits = Field(
        default=AtomBatchLimits(), validation_alias=AliasChoices("zero_offload", "zero-offload")
    )


def _placements_as_text(value: Any) -> Any:
    """Convert placements written as whole numbers, as in the artifact, to text."""
    if isinstance(value, list | tuple):
        return [_placements_as_text(each) for each in value]
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _a_placement(text: str) -> str:
    try:
        gpus_on_nodes(text)
    except PlanError:
        raise PydanticCustomError("refused", "has a placement that is none; write 8888 or 16,16") from None
    return text


def _a_plan(text: str) -> str:
    try:
        parse_plan(text)
    except PlanError:
        raise PydanticCustomError("refused", "is no plan; write 244, 2-1-16 or zero-offload+gc") from None
    return text


PlanText = Annotated[str, Text(40, shortest=1), AfterValidator(_a_plan)]
PlacementText = Annotated[
    str, Text(20_000, shortest=1), BeforeValidator(_placements_as_text), AfterValidator(_a_placement)
]
Placements = tuple[PlacementText, ...]


class ModelCard(_CardDocument):
    """A model for the elastic planner. The card's times belong to one global batch, which is the same for all
    resources."""

    name: Annotated[str, Text(255, shortest=1)]
    title: Annotated[str, Text(255)] = ""
    source: Annotated[str, Text(2_000)] = ""
    """Origin of the figures."""
    parameters_mi: Annotated[float, Number(1e-6, 1e9)] = Field(
        validation_alias=AliasChoices("parameters_mi", "params_M")
    )
    """Parameters / 2^20 (P), so that four times as much is MiB in fp32."""
    forward_ms: Annotated[float, Number(1e-9, 1e12)] = Field(
        validation_alias=AliasChoices("forward_ms", "forward_ms_1gpu")
    )
    """Forward pass of the whole global batch on one GPU (F0) [ms]."""
    global_batch: Annotated[int, Whole(1, 10**7)]
    """Samples of one iteration (B)."""
    hidden: Annotated[int, Whole(1, 10**7)]
    heads: Annotated[int, Whole(1, 10**6)] | None = None
    layers: Annotated[int, Whole(1, 10**5)]
    sequence: Annotated[int, Whole(1, 10**9)] = Field(validation_alias=AliasChoices("sequence", "seq"))
    """Tokens of a sample."""
    environment: Environment = Field(validation_alias=AliasChoices("environment", "env"))
    performance: PerformanceParameters = Field(validation_alias=AliasChoices("performance", "perf"))
    atom_batches: AtomBatches = Field(
        default=AtomBatches(), validation_alias=AliasChoices("atom_batches", "max_dp_atom_bsz")
    )
    three_dimensional: bool = True
    """True if the model can run with tensor and pipeline parallelism."""
    allowed_plans: dict[PlanText, Placements] = Field(
        default={}, validation_alias=AliasChoices("allowed_plans", "avail_placement")
    )
    """Placements on which each tensor, pipeline and data parallel plan may run, the plans in order of preference."""
    placements_of_gpus: dict[
        Annotated[int, Whole(1, 10**6), BeforeValidator(lambda key: _parse_numeric_key(key))], Placements
    ] = Field(default={}, validation_alias=AliasChoices("placements_of_gpus", "gpu_to_placements"))
    """For each number of GPUs the placements that a scheduler tries, both in order of preference."""
    plan_of_placement: dict[PlacementText, PlanText] = Field(
        default={}, validation_alias=AliasChoices("plan_of_placement", "placements_to_plan")
    )
    """The plan that a scheduler takes on each of these placements."""
    forward_speedup: dict[
        Annotated[int, Whole(1, 10**6), BeforeValidator(lambda key: _parse_numeric_key(key))],
        Annotated[float, Number(1e-6, 1e6)],
    ] = {}
    """Forward time on one GPU over that on a number of GPUs; numbers without an entry gain nothing. Where it is empty,
    n GPUs take one n-th of the time."""
    baseline_throughput: Annotated[float, Number(0, 1e12)] | None = Field(
        default=None, validation_alias=AliasChoices("baseline_throughput", "orig_tpt")
    )
    """Throughput by which a scheduler normalises the job's gains [samples/s]."""
    library_model: Annotated[str, Text(255, shortest=1)] | None = None
    """The model of the library that this is, for the physical variant."""
    system: Annotated[str, Text(255, shortest=1)] | None = None
    """The system of the library on which its times were taken, for the physical variant."""
    recompute: Annotated[tuple[Literal["none", "full"], ...], Accepts("a list of none, full or both")] = (
        "none",
        "full",
    )
    """Recomputation allowed for plans with degrees in the physical variant, which takes the fastest."""
    microbatches: Annotated[int, Whole(1, 10**6)] | None = None
    """Microbatches of a pipeline in plans with degrees, for the physical variant; None: the fastest number."""
    slowdown: Annotated[float, Number(1e-3, 1e3)] = 1.0
    """Measured over calibrated time of one iteration, for the physical variant; 1 if the software that ran is not
    known."""
    cpu_strategy: dict[str, float] = {}
    """CPUs that the artifact notes for each strategy; nothing reads them."""
    mem_strategy: dict[str, float] = {}
    """Memory that the artifact notes for each strategy; nothing reads it."""

    @property
    def tokens_hidden(self) -> int:
        """Returns elements of one layer's activations for one sample (SH): sequence times hidden."""
        return self.sequence * self.hidden


def _parse_numeric_key(key: Any) -> Any:
    """Keys of JSON objects are text: convert decimal ones to numbers."""
    return int(key) if isinstance(key, str) and key.isdecimal() and len(key) <= 9 else key
