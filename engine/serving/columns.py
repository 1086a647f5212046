"""The register of every field and figure of a deployment: name, unit, description. Labels and help derive from it."""

from __future__ import annotations

from typing import Final, Literal

from engine.columns import Column

__all__ = [
    "ALL",
    "FIELDS",
    "FIGURES",
    "HEADLINE",
    "MEMORY_PARTS",
    "OUTCOME",
    "STEP_PARTS",
    "by_name",
]


def _field_column(
    name: str,
    label: str,
    short: str,
    description: str,
    dtype: Literal["int64", "str"] = "int64",
    choices: tuple[str, ...] = (),
) -> Column:
    return Column(name, label, short, "", "field", dtype, "Deployment", None, description, choices)


def _figure_column(
    name: str,
    label: str,
    short: str,
    unit: str,
    group: str,
    better: Literal["higher", "lower"] | None,
    description: str,
    headline: bool = True,
) -> Column:
    return Column(name, label, short, unit, "statistic", "float64", group, better, description, headline=headline)


ID: Final = Column(
    "id",
    "Deployment id",
    "id",
    "",
    "identifier",
    "int64",
    "Result",
    None,
    "Position of the deployment in the enumeration of its space, counted from 0.",
)

FIELDS: Final[tuple[Column, ...]] = (
    _field_column("tensor_par", "Tensor parallel", "TP", "Processors that share every layer of a replica."),
    _field_column("pipeline_par", "Pipeline parallel", "PP", "Stages into which the blocks of a replica are cut."),
    _field_column(
        "expert_par",
        "Expert parallel",
        "EP",
        "Groups of routed experts: up to TP inside a replica; above, replicas exchange tokens. 1 slices every "
        "expert over TP.",
    ),
    _field_column("replicas", "Replicas", "replicas", "Copies of the model that serve different requests."),
    _field_column("batch", "Batch per replica", "batch", "Requests that a replica works on at the same time."),
    _field_column(
        "weight_bits",
        "Weight bits",
        "W bits",
        "Bits per weight of the linear layers; embedding and LM head have 16. Products run in the same precision "
        "where the system has it, else in 16 bits.",
    ),
    _field_column("kv_bits", "KV cache bits", "KV bits", "Bits per element of the KV cache."),
    _field_column(
        "launch",
        "Launch",
        "launch",
        "How kernels are launched: one by one, fused by a compiler, or captured in CUDA graphs.",
        "str",
        ("eager", "compiled", "graphs"),
    ),
    _field_column("prompt", "Prompt", "prompt", "Tokens of a request's prompt."),
    _field_column("output", "Output", "output", "Tokens that a request generates."),
)
"""Fields of a deployment and its workload."""

OUTCOME: Final[tuple[Column, ...]] = (
    Column(
        "status",
        "Status",
        "status",
        "",
        "outcome",
        "str",
        "Outcome",
        None,
        "Whether the deployment runs within all limits (ok), cannot (infeasible), or makes no sense (invalid).",
        ("ok", "infeasible", "invalid"),
    ),
    Column(
        "reason",
        "Reason",
        "reason",
        "",
        "outcome",
        "str",
        "Outcome",
        None,
        "Stable code of the first rule that the deployment breaks; empty when it runs.",
    ),
    Column(
        "reason_text",
        "Reason in words",
        "why",
        "",
        "outcome",
        "str",
        "Outcome",
        None,
        "Sentence with the numbers behind the reason; empty when it runs.",
    ),
)

FIGURES: Final[tuple[Column, ...]] = (
    _figure_column(
        "tokens_per_s_per_processor",
        "Output per GPU",
        "out/GPU",
        "tokens/s",
        "Throughput",
        "higher",
        "Output tokens per second of the whole deployment over its GPUs, every replica full: "
        "batch x output / (batch x prefill + (output - 1) x decode step) / (TP x PP).",
    ),
    _figure_column(
        "tokens_per_s_per_user",
        "Output per user",
        "out/user",
        "tokens/s",
        "Throughput",
        "higher",
        "Output tokens per second that one request sees: 1 / time per output token.",
    ),
    _figure_column(
        "tokens_per_s", "Output", "out", "tokens/s", "Throughput", "higher", "Output tokens per second of all replicas."
    ),
    _figure_column(
        "requests_per_s",
        "Requests",
        "requests/s",
        "requests/s",
        "Throughput",
        "higher",
        "Requests finished per second by all replicas.",
    ),
    _figure_column(
        "time_to_first_token",
        "Time to first token",
        "TTFT",
        "s",
        "Latency",
        "lower",
        "From the start of a request's prefill to its first token, without waiting in a queue.",
    ),
    _figure_column(
        "time_per_output_token",
        "Time per output token",
        "TPOT",
        "s",
        "Latency",
        "lower",
        "Mean time between tokens of a request: a decode step, and its share of the prefills of the requests "
        "beside it, (batch - 1) x prefill / (output - 1).",
    ),
    _figure_column(
        "request_latency",
        "Request latency",
        "latency",
        "s",
        "Latency",
        "lower",
        "Time to first token + (output - 1) x time per output token.",
    ),
    _figure_column(
        "decode_step_time",
        "Decode step",
        "step",
        "s",
        "Latency",
        "lower",
        "One token for every request of the batch, at the mean context of prompt + output / 2.",
    ),
    _figure_column(
        "prefill_time",
        "Prefill",
        "prefill",
        "s",
        "Latency",
        "lower",
        "Time that the prompt of one request keeps a replica busy: prompts that wait share a pass; with a pipeline "
        "the slowest stage counts.",
    ),
    _figure_column(
        "memory_total",
        "Memory needed",
        "HBM",
        "bytes",
        "Memory",
        "lower",
        "Memory of the processor that needs most, with every request at its full length.",
    ),
    _figure_column("memory_weights", "Weights", "weights", "bytes", "Memory", "lower", "Weights on that processor."),
    _figure_column(
        "memory_kv_cache",
        "KV cache",
        "KV",
        "bytes",
        "Memory",
        "lower",
        "Keys and values of all requests of a replica at prompt + output tokens, windowed layers at their window.",
    ),
    _figure_column(
        "memory_activations",
        "Activations",
        "act.",
        "bytes",
        "Memory",
        "lower",
        "Working memory of the largest pass, and 32-bit logits of the batch.",
    ),
    _figure_column(
        "memory_reserve",
        "Reserve",
        "reserve",
        "bytes",
        "Memory",
        "lower",
        "Left to the framework: a share of the capacity, and captured graphs.",
    ),
    _figure_column("memory_capacity", "Memory there is", "has", "bytes", "Memory", None, "Memory of one processor."),
    _figure_column(
        "largest_batch",
        "Largest batch",
        "max batch",
        "",
        "Memory",
        "higher",
        "Requests per replica that would fit at their full length.",
    ),
    _figure_column(
        "kv_bytes_per_token",
        "KV cache per token",
        "KV/token",
        "bytes",
        "Memory",
        "lower",
        "What one token adds to the cache in all layers of the model, held once.",
    ),
    _figure_column(
        "cost_per_million_tokens",
        "Cost per million tokens",
        "cost per M",
        "USD",
        "Cost",
        "lower",
        "Price of the GPUs while they produce a million output tokens, every replica full.",
    ),
    _figure_column(
        "energy_per_token",
        "Energy per token",
        "energy",
        "J",
        "Cost",
        "lower",
        "Board power of the GPUs per output token; no power for hosts, network or cooling.",
    ),
    _figure_column(
        "step_linear",
        "Linear layers",
        "linear",
        "s",
        "Decode step",
        "lower",
        "Reading weights, or computing with them where that takes longer.",
        False,
    ),
    _figure_column(
        "step_attention",
        "Attention",
        "attention",
        "s",
        "Decode step",
        "lower",
        "Reading the KV cache, or computing with it where that takes longer.",
        False,
    ),
    _figure_column(
        "step_elementwise",
        "Element-wise",
        "elem.",
        "s",
        "Decode step",
        "lower",
        "Norms, positions, activation functions, casts, permutations.",
        False,
    ),
    _figure_column(
        "step_tensor",
        "TP communication",
        "TP comm.",
        "s",
        "Decode step",
        "lower",
        "All-reduces of the tensor-parallel group.",
        False,
    ),
    _figure_column(
        "step_experts",
        "EP communication",
        "EP comm.",
        "s",
        "Decode step",
        "lower",
        "Tokens sent to experts on other replicas, and back.",
        False,
    ),
    _figure_column(
        "step_ends",
        "Embedding and head",
        "ends",
        "s",
        "Decode step",
        "lower",
        "Embedding, LM head, gathering of logits.",
        False,
    ),
    _figure_column(
        "step_launch",
        "Waiting for launches",
        "launch",
        "s",
        "Decode step",
        "lower",
        "What host time per kernel adds where kernels are shorter than their launches.",
        False,
    ),
    _figure_column(
        "step_pipeline",
        "Pipeline",
        "pipeline",
        "s",
        "Decode step",
        "lower",
        "Messages between stages, and waiting for the slowest stage.",
        False,
    ),
    _figure_column("step_host", "Host", "host", "s", "Decode step", "lower", "Scheduling and sampling.", False),
)

HEADLINE: Final[tuple[Column, ...]] = tuple(column for column in FIGURES if column.headline)
"""The figures that an exploration keeps for every deployment; the others are computed for rows in view."""

STEP_PARTS: Final[tuple[str, ...]] = tuple(column.name for column in FIGURES if not column.headline)
"""Parts of a decode step; they add up to `decode_step_time`."""

MEMORY_PARTS: Final = ("memory_weights", "memory_kv_cache", "memory_activations", "memory_reserve")
"""Parts of `memory_total`; they add up to it."""

ALL: Final[tuple[Column, ...]] = (ID, *FIELDS, *OUTCOME, *FIGURES)

_BY_NAME: Final = {column.name: column for column in ALL}


def by_name(name: str) -> Column:
    """Returns the column called `name`.

    Args:
        name: of a field or figure of deployments.

    Raises KeyError for an unknown name.
    """
    return _BY_NAME[name]
