"""Every value of a model or system that a person reads or edits: its path, its label, its unit, its help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from dashboard.link.catalogue import called
from engine.columns import choice_label
from engine.cost_models.registry import cost_models_ignoring
from hardware import System, network_names
from models import Model
from models.documents import marked, within

__all__ = ["Field", "Mark", "fields_of", "marks_of", "model_fields", "system_fields", "value_at"]

Kind = Literal["number", "whole", "switch", "choice", "table", "text"]

OPERATION_NAMES: Final = {
    "p2p": "Point to point",
    "reduce_scatter": "Reduce-scatter",
    "all_gather": "All-gather",
    "all_reduce": "All-reduce",
}

_REACHED: Final = "How much of the peak an operation reaches: from this many GFLOP on, this share."
_VOLUME: Final = "Bytes moved = size · factor · (1 + offset ÷ GPUs)."


@dataclass(frozen=True, slots=True)
class Field:
    """One value: its path in the document, and how it is shown."""

    path: str
    label: str
    section: str
    unit: str = ""
    help: str = ""
    kind: Kind = "number"
    factor: float = 1.0
    """Value in the document = shown value · factor."""
    options: tuple[str, ...] = ()
    editable: bool = True
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """Mark of a value: assumed, recalled or changed."""

    kind: Literal["assumed", "unverified", "changed"]
    text: str


def fields_of(thing: Model | System) -> list[Field]:
    """Returns the fields of a model or system, in the order of its sheet."""
    if isinstance(thing, Model):
        return list(model_fields(thing))
    return [_with_effect(each) for each in system_fields(thing)]


def _with_effect(field: Field) -> Field:
    """Say in the help of a system's field in which cost models it changes no figure."""
    ignoring = cost_models_ignoring(field.path)
    if not ignoring:
        return field
    models = f"cost model{'s' * (len(ignoring) > 1)}"
    said = f"Without effect in the {models} {' and '.join(ignoring)}."
    return replace(field, help=f"{field.help} {said}".strip())


def value_at(thing: Any, path: str) -> Any:
    """Returns the value at a dotted path; None where the path leads nowhere."""
    for part in path.split("."):
        if isinstance(thing, Mapping):
            thing = thing.get(part)
        elif isinstance(thing, tuple):
            thing = thing[int(part)] if int(part) < len(thing) else None
        else:
            thing = getattr(thing, part, None)
        if thing is None:
            return None
    return thing


def marks_of(thing: Model | System) -> dict[str, list[Mark]]:
    """Returns the marks of every field of a model or system, by path."""
    assumed = thing.assumed_values() if isinstance(thing, System) else ()
    found: dict[str, list[Mark]] = {}
    for field in fields_of(thing):
        marks = [Mark("assumed", basis) for path, _, basis in assumed if within(field.path, path)]
        marks += [
            Mark("unverified", text.partition(":")[2].strip() or "not seen in the cited source")
            for text in thing.unverified_fields
            if within(field.path, marked(text))
        ]
        origin = called(thing.derived_from, type(thing))
        marks += [
            Mark("changed", f"was {'none' if change.old is None else change.old} in {origin}")
            for change in thing.changes
            if within(field.path, change.field)
        ]
        if marks:
            found[field.path] = marks
    return found


def system_fields(system: System) -> Iterator[Field]:
    """Yields the fields of a system."""
    yield from _compute_fields(system)
    mode = "Whether computing and moving data within an operation overlap, so that the longer counts, or add up."
    yield Field(
        "processing_mode",
        "Compute and memory traffic",
        "Compute",
        "",
        mode,
        "choice",
        options=("roofline", "no_overlap"),
    )
    yield from _memory_fields("mem1", "Memory, HBM", "HBM", "Memory of each GPU.")
    yield from _memory_fields("mem2", "Memory, host", "Host memory", "The memory to offload to, per GPU; 0 for none.")
    for tier, name in enumerate(network_names(system)):
        yield from _network_fields(tier, f"Network: {name}" if name[:1].isupper() else name[:1].upper() + name[1:])
    yield from _fact_fields(system)


def _compute_fields(system: System) -> Iterator[Field]:
    for name in system.matrix:
        told = choice_label("datatype", name)
        yield Field(
            f"matrix.{name}.tflops",
            f"Matrix peak, {told}",
            "Compute",
            "TFLOP/s",
            "Dense peak rate of matrix multiplications on one GPU.",
        )
        yield Field(
            f"matrix.{name}.gflops_efficiency",
            f"Matrix efficiency, {told}",
            "Compute",
            "GFLOP: share",
            _REACHED,
            "table",
        )
    for name in system.vector:
        told = choice_label("datatype", name)
        yield Field(
            f"vector.{name}.tflops",
            f"Vector peak, {told}",
            "Compute",
            "TFLOP/s",
            "Peak rate of all other operations.",
        )
        yield Field(
            f"vector.{name}.gflops_efficiency",
            f"Vector efficiency, {told}",
            "Compute",
            "GFLOP: share",
            _REACHED,
            "table",
        )


def _memory_fields(name: str, section: str, word: str, what: str) -> Iterator[Field]:
    yield Field(f"{name}.capacity_gib", f"{word} capacity", section, "GiB", what)
    yield Field(
        f"{name}.bandwidth_gb_per_s",
        f"{word} bandwidth",
        section,
        "GB/s",
        "Peak rate, for host memory that of the link per direction.",
    )
    yield Field(
        f"{name}.mb_efficiency",
        f"{word} efficiency",
        section,
        "MB: share",
        "How much of the bandwidth a transfer reaches: from this many MB on, this share.",
        "table",
    )


def _network_fields(tier: int, section: str) -> Iterator[Field]:
    path = f"networks.{tier}"
    yield Field(
        f"{path}.size", "GPUs within it", section, "", "How many GPUs one such network links at equal rates.", "whole"
    )
    yield Field(f"{path}.bandwidth_gb_per_s", "Bandwidth", section, "GB/s", "Rate per GPU and direction.")
    yield Field(f"{path}.efficiency", "Efficiency", section, "", "Share of the bandwidth that collectives reach.")
    yield Field(
        f"{path}.latency_s", "Latency", section, "µs", "Time before the first byte of any operation.", factor=1e-6
    )
    yield Field(
        f"{path}.must_be_filled",
        "Group must be full",
        section,
        "",
        "Whether the parallelism placed here has to divide the size.",
        "switch",
    )
    yield Field(
        f"{path}.processor_usage",
        "GPU share while overlapping",
        section,
        "",
        "Share of the compute that communication takes while it overlaps with computation.",
    )
    if tier > 0:
        yield Field(
            f"{path}.within_node",
            "Inside a node",
            section,
            "",
            "Whether a node has this network inside, as a PCIe host has pairs on NVLink bridges. The innermost always "
            "is. Plans and launch scripts count nodes by it.",
            "switch",
        )
    for name, word in OPERATION_NAMES.items():
        at = f"{path}.operations.{name}"
        yield Field(f"{at}.scalar", f"{word}, factor", section, "", _VOLUME)
        yield Field(f"{at}.offset", f"{word}, offset", section, "", f"{_VOLUME} None counts as 0.", optional=True)


def _fact_fields(system: System) -> Iterator[Field]:
    if system.accelerator is None:
        return
    section = "Facts that the calculon cost model does not read"
    for name, label, unit, kind in (
        ("name", "Accelerator", "", "text"),
        ("generation", "Generation", "", "text"),
        ("tdp_w", "Design power", "W", "number"),
        ("tfloat32_tflops", "Matrix peak, TF32", "TFLOP/s", "number"),
        ("multiprocessors", "Multiprocessors", "", "whole"),
        ("clock_ghz", "Boost clock", "GHz", "number"),
        ("exponentials_per_clock", "Exponentials per clock", "", "whole"),
        ("usd_per_h", "Cloud price", "USD/h", "text"),
    ):
        if value_at(system, f"accelerator.{name}") is not None:
            yield Field(f"accelerator.{name}", label, section, unit, kind=kind, editable=False)  # type: ignore[arg-type]


_BLOCK: Final = (
    ("hidden", "Hidden width", "elements", "Width of the residual stream."),
    ("feedforward", "Feedforward width", "elements", "Width of the MLP between its two matrices."),
    ("attn_heads", "Attention heads", "", "Heads, each with its own key and value."),
    ("attn_size", "Head width", "elements", "Width of one head."),
    ("num_blocks", "Blocks", "", "Transformer blocks."),
)
MIRRORED: Final = {
    "hidden": "architecture.hidden",
    "attn_heads": "architecture.heads",
    "attn_size": "architecture.head_dim",
    "num_blocks": "architecture.layers",
}
"""Block numbers that a recorded architecture states too; an edit changes both."""

_ARCHITECTURE: Final = {
    "hidden": ("Hidden width", "elements", ""),
    "ffn": ("MLP width", "elements", "Of each of the two branches where it is gated."),
    "layers": ("Layers", "", ""),
    "heads": ("Query heads", "", ""),
    "kv_heads": ("Key and value heads", "", "Fewer than query heads: grouped-query attention; 1: multi-query."),
    "head_dim": ("Head width", "elements", ""),
    "gated_mlp": ("Gated MLP", "", "Whether the MLP multiplies two branches, with three matrices instead of two."),
    "vocab": ("Vocabulary", "tokens", ""),
    "vocab_padded": ("Vocabulary as stored", "tokens", "Rows of the embedding matrix."),
    "tied_embeddings": ("Tied embeddings", "", "Whether the LM head is the embedding matrix."),
    "norm": ("Norm", "", ""),
    "norms_per_block": ("Norms in a block", "", ""),
    "parallel_residual": ("Attention and MLP in parallel", "", ""),
    "qkv_bias": ("Query, key, value biases", "", ""),
    "linear_bias": ("Other biases", "", ""),
    "qk_norm": ("Queries and keys normalised", "", ""),
    "qk_norm_over": ("Extent of those norms", "", "Each head, or all heads together."),
    "qk_norm_weighted": ("Those norms weighted", "", "False if they have no weights."),
    "attention_sinks": ("Attention sinks", "", "Whether each head has a trained logit in its softmax."),
    "norm_shift": ("Norm with shift", "", "Whether a LayerNorm has a shift besides its scale."),
    "norm_scale": ("Norm with weights", "", "Whether norms have weights at all."),
    "activation_weights": ("Weights of the activation", "", "Trained numbers in the activation of one MLP."),
    "positions": ("Positions", "", ""),
    "rope_theta": ("Rotary base", "", ""),
    "max_seq": ("Longest context", "tokens", ""),
    "sliding_window": ("Attention window", "tokens", ""),
    "window_kind": ("Kind of window", "", ""),
    "full_attention_every": ("Full attention every", "layers", ""),
    "prediction_layers": ("Prediction layers", "", "Further blocks for multi-token prediction."),
    "trained_prediction_layers": (
        "Prediction layers trained",
        "",
        "Of them, those that a training run trains: the calibrated cost model counts "
        "each as a block, a projection and another pass of the head, on the last stage.",
    ),
    "params_published_b": ("Parameters, published", "billion", ""),
    "params_active_published_b": ("Active parameters, published", "billion", ""),
}
_PATTERN: Final = (
    ("hidden", "Hidden width", "elements"),
    ("layers", "Layers", ""),
    ("vocab", "Vocabulary as stored", "tokens"),
    ("tied_embeddings", "Tied embeddings", ""),
    ("max_seq", "Longest context", "tokens"),
)
_PART_FIELDS: Final[Mapping[str, tuple[str, str, str]]] = {
    "experts.routed": ("Experts", "", "Experts of one layer among which the router chooses."),
    "experts.top_k": ("Experts per token", "", "Routed experts that each token visits."),
    "experts.ffn": ("Width of an expert", "elements", "Width of the MLP of one routed expert."),
    "experts.shared": ("Shared experts", "", "Experts that every token visits."),
    "experts.shared_ffn": ("Width of shared experts", "elements", "Width of all shared experts of a layer together."),
    "experts.leading_dense_layers": ("Leading dense layers", "", "First layers that have an ordinary MLP instead."),
    "experts.every": ("Experts in every so many layers", "", "1: in every layer; 2: in every second one."),
    "experts.router_bias": ("Router with bias", "", "Whether the router has one trained bias per expert."),
    "experts.groups": ("Groups of experts", "", "Groups of equally many experts, each on one node or device."),
    "experts.groups_per_token": ("Groups per token", "", "Groups that hold all experts of one token."),
    "latent_attention.q_rank": ("Compressed query", "elements", "Width of the latent that queries come from."),
    "latent_attention.kv_rank": (
        "Compressed keys and values",
        "elements",
        "Width of the latent that keys and values come from.",
    ),
    "latent_attention.nope_head_dim": (
        "Head width without position",
        "elements",
        "Part of a query or key head that is not rotated.",
    ),
    "latent_attention.rope_head_dim": (
        "Head width with position",
        "elements",
        "Part of a query head that is rotated; all heads share one such key.",
    ),
    "latent_attention.v_head_dim": ("Head width of values", "elements", "Width of a value head."),
    "sparse_attention.heads": ("Heads of the indexer", "", "They score which tokens a query attends to."),
    "sparse_attention.head_dim": ("Head width of the indexer", "elements", "Width of one of its heads."),
    "sparse_attention.layers": (
        "Layers with an indexer",
        "",
        "The other layers attend to the tokens that the layer before them picked.",
    ),
    "sparse_attention.top_k": ("Tokens attended to", "tokens", "How many tokens the indexer picks per query."),
}
_PARTS: Final = {
    "experts": "Mixture of experts",
    "latent_attention": "Latent attention",
    "sparse_attention": "Sparse attention",
}


_SILENT_DEFAULTS: Final = (
    "qk_norm_over",
    "qk_norm_weighted",
    "attention_sinks",
    "norm_shift",
    "norm_scale",
    "activation_weights",
)
"""Fields of few models, shown where a model has them."""


def model_fields(model: Model) -> Iterator[Field]:
    """Yields the fields of a model."""
    section = "Training sample" if model.block is None else "What the calculon cost model reads"
    yield Field("seq_size", "Sequence", section, "tokens", "Length of one training sample.", "whole")
    if model.block is not None:
        for name, label, unit, text in _BLOCK:
            yield Field(name, label, section, unit, text, "whole", editable=model.calculon is not None)
    if model.layers is not None:
        for name, label, unit in _PATTERN:
            if getattr(model.layers, name) is not None:
                kind = _kind_of_value(getattr(model.layers, name))
                yield Field(f"layers.{name}", label, "Published pattern", unit, kind=kind, editable=False)
    architecture = model.architecture
    if architecture is None:
        return
    free, changed = model.calculon is None, {change.field for change in model.changes}
    for name, (label, unit, text) in _ARCHITECTURE.items():
        value = getattr(architecture, name)
        is_default = value == type(architecture).model_fields[name].default
        if name in _SILENT_DEFAULTS and is_default and f"architecture.{name}" not in changed:
            continue
        if name == "window_kind" and architecture.sliding_window is None:
            continue  # a default that says nothing
        if value is not None:
            editable = free or f"architecture.{name}" not in MIRRORED.values()
            yield Field(
                f"architecture.{name}",
                label,
                "Published architecture",
                unit,
                text,
                _kind_of_value(value),
                editable=editable and not isinstance(value, str),
            )
    for part, title in _PARTS.items():
        inner = getattr(architecture, part)
        for name in type(inner).model_fields if inner is not None else ():
            value = getattr(inner, name)
            if value is not None and not isinstance(value, tuple):
                label, unit, text = _PART_FIELDS[f"{part}.{name}"]
                yield Field(f"architecture.{part}.{name}", label, title, unit, text, _kind_of_value(value))


def _kind_of_value(value: object) -> Kind:
    if isinstance(value, bool):
        return "switch"
    if isinstance(value, int):
        return "whole"
    return "number" if isinstance(value, float) else "text"
