"""Inputs of the calibrated cost model: four groups of arrays [rows], one row per execution.

Every field is a float64 array [rows] or a plain number that broadcasts against the others, so that a space of one
model on one system passes scalars for both and arrays for the execution only. Truths are 0.0 and 1.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from engine.columns.stage_layouts import EVEN
from engine.cost_models.calibrated.physics.case_cache import CachedRows, once_per_case
from engine.cost_models.calibrated.physics.pipeline.schedules import plain_schedule
from engine.executions.arrays import Floats
from hardware import USUAL_EXPONENTIALS
from models import LayerPattern
from models.layers import Product

__all__ = [
    "ATTENTION_KERNELS",
    "BY_MODULE",
    "CONTEXT_EXCHANGES",
    "DISPATCHERS",
    "GENERATIONS",
    "LAUNCHES",
    "MODELLED_GENERATIONS",
    "RECOMPUTES",
    "SIZES",
    "Accelerators",
    "Case",
    "Floats",
    "Layout",
    "ModelShapes",
    "Software",
    "TunedShapes",
]


GENERATIONS = (
    "ampere",
    "hopper",
    "blackwell",
    "cdna3",
    "cdna4",
    "tpu v4",
    "tpu v5e",
    "tpu v5p",
    "tpu v6e",
    "tpu7x",
    "other",
)
"""Accelerator generations that have kernel rates (`parameters.SUSTAINED`), by the library's names; `other` are all that
have none. `Accelerators.generation` is a position here."""

MODELLED_GENERATIONS = ("cdna3", "other")
"""Generations without a measured run: CDNA 3 has the rates of CDNA 4, `other` a stated one."""

ATTENTION_KERNELS = ("unfused", "flash1", "flash2", "native")
"""Score matrix in memory; FlashAttention 1; 2; a kernel written for the generation (cuDNN, FlashAttention 3)."""

LAUNCHES = ("eager", "fused", "compiled", "graphs", "partial_graphs", "blocking")
"""Ways to launch kernels: plain framework calls, fused kernels (Megatron), torch.compile, CUDA graphs of the full
iteration, CUDA graphs of blocks without their routed experts, or plain calls that each wait for the accelerator
(CUDA_LAUNCH_BLOCKING), so that host time adds to device time. An execution has all but the last."""

DISPATCHERS = ("all_to_all", "all_gather", "deepep", "hybridep")
"""Token dispatchers: a collective all-to-all; a collective that sends every token to every rank; kernels that forward
tokens from the network to the links of a host as they arrive (DeepEP, HybridEP)."""

CONTEXT_EXCHANGES = ("p2p", "all_gather", "a2a", "hierarchical")
"""Exchanges between context-parallel ranks: keys and values around a ring; keys and values of all ranks gathered; an
all-to-all that gives every rank some heads of all tokens; that inside the innermost network and a ring beyond it."""

RECOMPUTES = (
    "none",
    "selective",
    "full",
    "half",
    "operators",
    "save_projections",
    "save_dots",
    "modules",
    "by_module",
)
"""Kinds of recomputation in the backward pass: see `engine.cost_models.calibrated.physics.layers.recompute`. The last
repeats the modules of `Layout.recompute_modules`."""
BY_MODULE = RECOMPUTES.index("by_module")


@dataclass(frozen=True, slots=True)
class TunedShapes:
    """The trained part of a model, its loss and its samples, as plain numbers; see `models.ModelTuning`.

    `products` are the ones with an adapter of rank `rank` [elements], for a block of every size of weights in the order
    of `LocalWeights.blocks`, and `adapted_norms` the number of norms that they read; with a rank of 0 all weights are
    trained. `frozen_bits` is the width of frozen weights of blocks with their scales [bits], `loss_chunk` the tokens
    whose logits are in memory at once, 0 for all. `fill` and `square_share` as of `models.PackedSamples`.
    """

    rank: float = 0.0
    products: tuple[tuple[Product, ...], ...] = ()
    adapted_norms: tuple[int, ...] = ()
    frozen_bits: float = 16.0
    loss_chunk: float = 0.0
    fill: float = 1.0
    square_share: float = 1.0

    @property
    def is_frozen(self) -> bool:
        """True if only adapters are trained."""
        return self.rank > 0


class _Arrays:
    """A group of arrays; subclasses are dataclasses whose fields are all arrays or numbers."""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Returns the fields of this group out of a mapping or table that may hold more.

        Args:
            values: fields by name, numbers or arrays [rows].
        """
        names = [each.name for each in fields(cls)]  # type: ignore[arg-type]
        given = cls._completed(values)
        return cls(**{name: _to_arrays(given[name]) for name in names})

    @classmethod
    def _completed(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values, with missing ones derived from others."""
        return values

    def columns(self) -> Iterator[Floats]:
        """Yield every array of the group, including the arrays of each network."""
        for each in fields(self):  # type: ignore[arg-type]
            value = getattr(self, each.name)
            if not _is_constant(value):
                yield from value if isinstance(value, tuple) else (value,)

    def take(self, index: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> Self:
        """Returns the rows at `index`; numbers stay as they are.

        Args:
            index: positions of rows, or a truth for each [rows].
        """
        values = {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]
        return type(self)(**{name: _take_rows(value, index) for name, value in values.items()})


def _is_constant(value: Any) -> bool:
    """Return True for a pattern of blocks, a tuning or their absence, which are no arrays of rows."""
    return value is None or isinstance(value, LayerPattern | TunedShapes)


def _to_arrays(value: Any) -> Any:
    """Return an array, or a tuple of them; a pattern of blocks or a tuning as it is."""
    if _is_constant(value):
        return value
    return tuple(map(_to_arrays, value)) if isinstance(value, tuple) else np.asarray(value, np.float64)


def _take_rows(value: Any, index: npt.NDArray[Any]) -> Any:
    if _is_constant(value):
        return value
    if isinstance(value, tuple):
        return tuple(_take_rows(each, index) for each in value)
    return value[index] if np.ndim(value) else value


@dataclass(frozen=True, slots=True)
class ModelShapes(_Arrays):
    """The model: sizes in elements, counts of blocks and experts.

    `attn_size` is the width of one head of queries and keys, `value_size` of values. `latent` is 1 for multi-head
    latent attention, whose projections pass through `query_rank` and `key_value_rank`, with `rope_size` columns of the
    key shared by all heads.

    Blocks are numbered from 1. With a `window` [tokens], multiples of `full_attention_every` attend to everything (none
    where it is 0), and `window_chunked` is 1 where the sequence is cut into chunks of that size rather than the window
    moving along. With `experts`, blocks after the first `leading_dense` have them that are multiples of
    `experts_every`; the others have a plain feed-forward layer of width `feedforward`. All experts of a token are in
    `groups_per_token` of `expert_groups` groups of equally many. `prediction_layers` for multi-token prediction follow
    the last block; each has one like it, a projection of two vectors to one, and another pass of the head.

    With a `pattern`, all rows are of that one model, whose blocks it lists; the other sizes are then of its first
    attention and feed-forward layers. With a `tuning`, all rows are of one model that is trained so.
    """

    hidden: Floats
    feedforward: Floats
    num_blocks: Floats
    attn_heads: Floats
    key_value_heads: Floats
    attn_size: Floats
    value_size: Floats
    vocabulary: Floats
    seq_size: Floats
    gated: Floats
    tied_embeddings: Floats
    latent: Floats
    query_rank: Floats
    key_value_rank: Floats
    rope_size: Floats
    window: Floats
    window_chunked: Floats
    full_attention_every: Floats
    experts: Floats
    experts_per_token: Floats
    expert_feedforward: Floats
    shared_experts: Floats
    leading_dense: Floats
    experts_every: Floats
    expert_groups: Floats
    groups_per_token: Floats
    prediction_layers: Floats
    pattern: LayerPattern | None = None
    tuning: TunedShapes | None = None

    @classmethod
    def _completed(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        return {
            "expert_groups": 1.0,
            "groups_per_token": 1.0,
            "prediction_layers": 0.0,
            "pattern": None,
            "tuning": None,
            **values,
        }


SIZES: tuple[str, ...] = tuple(name for name in ModelShapes.__dataclass_fields__ if name not in ("pattern", "tuning"))
"""Names of the sizes of a model, each a number or an array [rows]."""


@dataclass(frozen=True, slots=True)
class Accelerators(_Arrays):
    """The accelerator and its networks, datasheet values.

    `flops16`, `flops8`, `flops4`: dense matrix peaks [FLOP/s]; `scaled_peaks` likewise for `formats.SCALED`, 0 for a
    format that the accelerator does not compute in; `memory_bandwidth` [bytes/s]; `capacity` [bytes]; `power` [W];
    `generation` a position in `GENERATIONS`; `multiprocessors`, their `clock` [Hz] and their `exponentials` per clock;
    `network_sizes` processors that one network of each tier connects, innermost first and none smaller than the one
    before, and `network_bandwidths` their rates per processor and direction [bytes/s].
    """

    flops16: Floats
    flops8: Floats
    flops4: Floats
    memory_bandwidth: Floats
    capacity: Floats
    power: Floats
    generation: Floats
    multiprocessors: Floats
    clock: Floats
    network_sizes: tuple[Floats, ...]
    network_bandwidths: tuple[Floats, ...]
    scaled_peaks: tuple[Floats, ...] = ()
    exponentials: Floats = field(default_factory=lambda: np.asarray(float(USUAL_EXPONENTIALS)))

    @classmethod
    def _completed(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"scaled_peaks": (), "exponentials": float(USUAL_EXPONENTIALS), **values}

    @property
    def domain(self) -> Floats:
        """Processors that share the innermost network."""
        return self.network_sizes[0]


@dataclass(frozen=True, slots=True)
class Layout(_Arrays):
    """Distribution of the model and its batches: degrees of parallelism, batch, precision.

    `data_par` counts replicas; `context_par` is not part of it. `expert_par` divides data x context (x tensor)
    processors; `expert_tensor_par` splits each expert. `zero_stage` 0-3; `fully_sharded` is 1 where weights are
    gathered layer by layer. `linear_bits` is the width of a factor of the linear layers with its part of the scale
    [bits], `linear_format` 0 for the plain datatype of 16, 8 or 4 bits, else 1 + a position in `formats.SCALED`.
    `recompute` a position in `RECOMPUTES`, `recompute_modules` the sum of 2 to the position in
    `engine.columns.recompute_modules.MODULES` of every repeated module, `schedule` one in
    `engine.cost_models.calibrated.physics.pipeline.schedules.SCHEDULES`, `stage_layout` one among the words of that
    field. `training` is 0 for a forward pass alone.
    """

    tensor_par: Floats
    pipeline_par: Floats
    data_par: Floats
    context_par: Floats
    expert_par: Floats
    expert_tensor_par: Floats
    pipeline_interleaving: Floats
    schedule: Floats
    stage_layout: Floats
    microbatch_size: Floats
    batch_size: Floats
    sequence_par: Floats
    zero_stage: Floats
    fully_sharded: Floats
    linear_bits: Floats
    linear_format: Floats
    recompute: Floats
    recompute_share: Floats
    recompute_modules: Floats
    training: Floats

    @classmethod
    def _completed(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        derived = {"schedule": plain_schedule(values["pipeline_interleaving"]), "stage_layout": EVEN}
        return {**derived, "linear_format": 0.0, "recompute_modules": 0.0, "training": 1.0, **values}

    @property
    def groups(self) -> tuple[Floats, Floats, Floats]:
        """Processors that tensor, context and expert parallel groups reach over: each is placed together."""
        return self.tensor_par, self.tensor_par * self.context_par, self.expert_par * self.expert_tensor_par


@dataclass(frozen=True, slots=True)
class Software(_Arrays):
    """Facts about the training framework, not fitted.

    `attention_kernel` and `launch` are positions in `ATTENTION_KERNELS` and `LAUNCHES`. Truth values say whether
    data-parallel, tensor-parallel, expert and pipeline communication overlap with computation, and whether pipeline
    messages are split over the tensor-parallel group. `gradient_bytes` per parameter in the data-parallel reduction
    and in the buffer that it reduces, `moment_bytes` per parameter of each of the optimizer's two moments,
    `gather_bytes` per parameter in fully sharded gathers, `shard_gradient_bytes` in fully sharded reductions.
    `unfused_elementwise` is 1 where norms and activations run as plain framework operators.
    `gather_cast_bytes` per parameter and pass for casts of gathered weights. `partial_graphs` is 1 where graphs cover
    part of a block only. `token_dispatcher` is a position in `DISPATCHERS`, `dispatch_bytes` per element of a token on
    its way to an expert, with its scales, `kept_bytes` per element that activation functions store for the backward
    pass; linear layers store no more, and less where they compute in fewer bits. `fp8_parameters` is 1 where
    weights of 8-bit products are held and gathered in 8 bits, instead of in 16 with 8-bit copies beside them.
    `busiest_load` is the tokens of the expert rank with most of them over the mean, at least 1, `context_par_comm` a
    position in `CONTEXT_EXCHANGES`.
    """

    attention_kernel: Floats
    launch: Floats
    unfused_elementwise: Floats
    overlap_data: Floats
    overlap_tensor: Floats
    overlap_expert: Floats
    overlap_pipeline: Floats
    split_messages: Floats
    gradient_bytes: Floats
    gather_bytes: Floats
    gather_cast_bytes: Floats
    shard_gradient_bytes: Floats
    grouped_experts: Floats
    gather_calls: Floats
    gather_efficiency: Floats
    pytorch_native: Floats
    messages: Floats
    moment_bytes: Floats
    age_years: Floats
    token_dispatcher: Floats
    dispatch_bytes: Floats
    kept_bytes: Floats
    fp8_parameters: Floats
    busiest_load: Floats
    context_par_comm: Floats

    @classmethod
    def _completed(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        usual = {"token_dispatcher": 0.0, "dispatch_bytes": 2.0, "kept_bytes": 2.0, "fp8_parameters": 0.0}
        return {**usual, "busiest_load": 1.0, "context_par_comm": 0.0, **values}


@dataclass(frozen=True, slots=True)
class Case(CachedRows):
    """Model, accelerator, layout and software of the same rows."""

    model: ModelShapes
    accelerator: Accelerators
    layout: Layout
    software: Software

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Case:
        """Returns a case from one mapping or table with the fields of all four groups.

        Args:
            values: fields by name, numbers or arrays [rows].
        """
        return cls(ModelShapes.of(values), Accelerators.of(values), Layout.of(values), Software.of(values))

    def take(self, index: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> Case:
        """Returns the rows at `index`.

        Args:
            index: positions of rows, or a truth for each [rows].
        """
        return Case(
            self.model.take(index), self.accelerator.take(index), self.layout.take(index), self.software.take(index)
        )

    @property
    @once_per_case
    def tokens(self) -> Floats:
        """Tokens of one microbatch on one context-parallel rank; packs are padded to the sequence where a pipeline
        needs messages of one shape."""
        tokens = self.layout.microbatch_size * self.model.seq_size / self.layout.context_par
        tuning = self.model.tuning
        if tuning is None or tuning.fill == 1.0:
            return tokens
        return tokens * np.where(self.layout.pipeline_par > 1, 1.0, tuning.fill)

    @property
    @once_per_case
    def split_tokens(self) -> Floats:
        """Tokens between the tensor-parallel layers: split over the group under sequence parallelism."""
        return self.tokens / np.where(self.layout.sequence_par > 0, self.layout.tensor_par, 1.0)

    @property
    @once_per_case
    def key_value_heads(self) -> Floats:
        """Key and value heads of the whole tensor-parallel group: each is repeated where there are more ranks."""
        return np.maximum(self.model.key_value_heads, self.layout.tensor_par)

    @property
    @once_per_case
    def busiest_load(self) -> Floats:
        """Tokens of the busiest expert rank over the mean: at most all tokens, and each token's experts once."""
        load = self.software.busiest_load
        if not np.any(load > 1.0):
            return load
        # Of n ranks with E/n experts each, one receives at most min(k, E/n) of a token's k copies; the mean is k/n.
        most = np.minimum(self.layout.expert_par, self.model.experts / np.maximum(self.model.experts_per_token, 1.0))
        return np.minimum(load, np.maximum(most, 1.0))

    @property
    @once_per_case
    def microbatches(self) -> Floats:
        """Microbatches that each pipeline runs in a step, at least 1."""
        share = self.layout.batch_size / (self.layout.data_par * self.layout.microbatch_size)
        return np.maximum(np.round(share), 1.0)

    @property
    def with_full_packs(self) -> Case:
        """The same rows where every sequence is full, as the longest pack of samples may be: it decides the memory."""
        tuning = self.model.tuning
        if tuning is None or tuning.fill == 1.0:
            return self
        return replace(self, model=replace(self.model, tuning=replace(tuning, fill=1.0)))

    @property
    def forward_only(self) -> npt.NDArray[np.bool_] | None:
        """Rows of a forward pass alone; None without any."""
        alone = self.layout.training <= 0
        return alone if np.any(alone) else None

    @property
    def frozen(self) -> TunedShapes | None:
        """The tuning of a model whose own weights are frozen; None if they are trained."""
        tuning = self.model.tuning
        return tuning if tuning is not None and tuning.is_frozen else None

    @property
    @once_per_case
    def processors(self) -> Floats:
        """Processors of the whole job."""
        layout = self.layout
        return layout.tensor_par * layout.pipeline_par * layout.data_par * layout.context_par
