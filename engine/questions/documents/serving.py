"""Questions about serving: every way to serve a model on a number of processors, and the fewest that hold a load."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from engine.questions.fields import Asked, FieldKind
from engine.questions.verb import Document, Named
from models.documents import Accepts, Number, Text, Whole

__all__ = [
    "SERVING_TARGETS",
    "DeploymentExportQuestion",
    "DeploymentImportQuestion",
    "DeploymentTermsQuestion",
    "DeploymentsQuestion",
    "LoadedModel",
    "ServedModel",
    "ServersQuestion",
    "ServiceQuestion",
    "limits_in_words",
]

LONGEST_TEXT: Final = 500_000
ENGINE_NAMES: Final = ("vllm", "sglang", "trtllm")
"""Engines of `engine.launch`."""
SERVING_TARGETS: Final = (*ENGINE_NAMES, "kubernetes", "llm-d", "dynamo")
"""Targets of `engine.launch.write_deployment`."""
_ENGINES: Final = "|".join(ENGINE_NAMES)
FIRST_TOKEN_S: Final = 1.0
PER_TOKEN_S: Final = 0.05
"""Service level of questions without limits of their own [s]. A second is the limit up to which the flow of thought
stays (Nielsen 1993, Usability Engineering, section 5.5); 20 tokens per second are several times the speed of reading.
Source: stated by us."""

Deployment = Annotated[
    dict[str, bool | int | float | str | None],
    Accepts("an object with values by field name"),
    Field(description="Values by field name, such as a row of `find_deployments`."),
]
Gpus = Annotated[int, Whole(1, 2**31 - 1)]

Limit = Annotated[float, Number(1e-6, 1e6)]


class ServedModel(Document):
    """Fields that all questions about serving have: model, system, lengths, limits and price."""

    model: Annotated[Named, Asked("Model", option_help="Library name or JSON file of the model.")] = Field(
        description="Model: a name that `list_models` has, or a whole model document."
    )
    system: Annotated[Named, Asked("System", option_help="Library name or JSON file of the system.")] = Field(
        description="System: a name that `list_systems` has, or a whole system document."
    )
    prompt: Annotated[int, Whole(1, 2**30), Asked("Prompt length", "tokens")] = Field(
        description="Tokens of a request's prompt."
    )
    output: Annotated[int, Whole(1, 2**30), Asked("Output length", "tokens")] = Field(
        description="Tokens that a request generates."
    )
    time_to_first_token_s: Annotated[
        Limit | None,
        Asked(
            "First token",
            "s",
            option="ttft",
            parameter="ttft",
            parameter_unit="ms",
            option_help="Limit on the time to first token.",
        ),
    ] = Field(default=FIRST_TOKEN_S, description="Limit on the time to first token; null for none.")
    time_per_output_token_s: Annotated[
        Limit | None,
        Asked(
            "Per token",
            "s",
            option="tpot",
            parameter="tpot",
            parameter_unit="ms",
            option_help="Limit on the time per output token.",
        ),
    ] = Field(default=PER_TOKEN_S, description="Limit on the time per output token; null for none.")
    limits: Annotated[
        dict[str, Any],
        Accepts("an object with limits by field name"),
        Asked(
            "Limits",
            option="limit",
            kind=FieldKind.LIMITS,
            metavar="FIELD=VALUES",
            option_help="Values of a field, such as tensor_par=1,2,4, batch=1..64 or engine=vllm. May be repeated.",
        ),
    ] = Field(
        default_factory=dict,
        description="Values of fields of deployments: a value, a list of values, or {min, max}. Fields are tensor_par, "
        "pipeline_par, expert_par, replicas, batch, weight_bits, kv_bits, attention_bits, compute_bits (16, 8 or 4), "
        "launch (eager, compiled or graphs) and engine (generic, vllm, sglang or trtllm); others are tried in all "
        "ways, but attention_bits and compute_bits are those of the weights, and the engine is generic.",
    )
    price_usd_per_h: Annotated[
        Annotated[float, Number(0, 1e6)] | None, Asked("Price", "USD/h", option="price", parameter="price")
    ] = Field(default=None, description="Price of a GPU and hour; the middle of the recorded prices by default.")
    memory_share: Annotated[
        Annotated[float, Number(0.05, 1.0)] | None, Asked("Memory share", option="memory-share", parameter="share")
    ] = Field(default=None, description="Share of the memory that the engine may use, such as 0.95; 0.9 by default.")
    prefill_chunk: Annotated[
        int, Whole(1, 2**20), Asked("Prefill chunk", "tokens", option="chunk", parameter="chunk")
    ] = Field(default=8192, description="Most prompt tokens of a prefill pass; 8,192 by default, as in most engines.")
    prefix_hit_rate: Annotated[
        float, Number(0, 1), Asked("Prefix cache hits", option="prefix-hits", parameter="hits")
    ] = Field(
        default=0.0,
        description="Share of the prompt tokens that the prefix cache has, which are not computed; none by default.",
    )
    host_hit_share: Annotated[
        float, Number(0, 1), Asked("Hits in host memory", option="host-hits", parameter="host_hits")
    ] = Field(
        default=0.0,
        description="Share of the hits of the prefix cache that is in host memory: loaded, or computed again where "
        "that is faster; none by default.",
    )
    host_cache_gib: Annotated[
        Annotated[float, Number(1e-3, 1e6)] | None,
        Asked("Host memory for cache", "GiB", option="host-cache", parameter="host_gib"),
    ] = Field(
        default=None,
        description="Host memory for the cache of a GPU; all that the system has per GPU by default.",
    )
    draft_tokens: Annotated[int, Whole(0, 64), Asked("Draft tokens", "tokens", parameter="drafts")] = Field(
        default=0, description="Tokens that a draft predicts per step and request; none by default."
    )
    accepted_tokens: Annotated[float, Number(0, 64), Asked("Accepted drafts", "tokens", parameter="accepted")] = Field(
        default=0.0, description="Draft tokens that are accepted per step on average, at most `draft_tokens`."
    )
    acceptance_rate: Annotated[
        Annotated[float, Number(0, 1)] | None, Asked("Acceptance rate", option="acceptance", parameter="acceptance")
    ] = Field(
        default=None,
        description="Probability that a draft token is accepted after those before it, instead of `accepted_tokens`.",
    )
    draft_model: Annotated[
        Named | None,
        Asked("Draft model", parameter="draft", option_help="Library name or JSON file of the model that drafts."),
    ] = Field(
        default=None,
        description="Model that drafts, by name or as a document; prediction layers of the model's own by default.",
    )
    draft_bits: Annotated[int, Whole(4, 16), Asked("Draft model bits", "bits", parameter="draft_bits")] = Field(
        default=16, description="Bits of the draft model's weights and products: 16, 8 or 4; 16 by default."
    )
    lora_adapters: Annotated[int, Whole(0, 4096), Asked("LoRA adapters", parameter="loras")] = Field(
        default=0, description="Adapters of low rank (LoRA) in memory at once, one for each request; none by default."
    )
    lora_rank: Annotated[int, Whole(1, 1024), Asked("LoRA rank", parameter="rank")] = Field(
        default=16, description="Rank of the adapters; 16 by default, as in vLLM."
    )
    factors: Annotated[
        Named | None,
        Asked("Engine factors", option_help="JSON file of measured factors, as `servers --out` writes it."),
    ] = Field(
        default=None,
        description="Calibration with measured factors on the latencies of engines, as `compare_servers` returns it; "
        "none by default.",
    )

    @field_validator("draft_bits")
    @classmethod
    def _check_draft_bits(cls, bits: int) -> int:
        if bits not in (16, 8, 4):
            raise PydanticCustomError("not_accepted", "one of 16, 8, 4")
        return bits


class DeploymentsQuestion(ServedModel):
    """Question for the deployments of a model, the best first, within limits of latency."""

    num_procs: Annotated[
        int, Whole(1, 2**20), Asked("Number of GPUs", option="num-procs", other_option="procs", parameter="procs")
    ] = Field(description="Processors; every deployment uses all of them.")
    requests_per_slot: Annotated[
        Annotated[float, Number(1.0, 1e6)] | None,
        Asked("Requests per slot", option="requests-per-slot", parameter="burst"),
    ] = Field(
        default=None,
        description="Requests that a benchmark sends per request in flight, all at once at first, such as 10; a steady "
        "load by default.",
    )
    top: Annotated[int, Whole(0, 10_000)] = Field(default=10, description="Best deployments to list.")
    by: Annotated[str, Asked("Order")] = Field(
        default="tokens_per_s_per_processor", description="Figure to rank deployments by."
    )
    frontier: bool = Field(
        default=False, description="List the frontier of output per processor and per user instead of the best."
    )
    cache_room: Annotated[float, Number(0, 10), Asked("Room in cache", parameter="room")] = Field(
        default=0.1,
        description="Share of its requests at once for which the cache of the recommended deployment has room in "
        "addition; 0.1 by default.",
    )
    changes: Annotated[bool, Asked("Changes")] = Field(
        default=False,
        description="Recommend a deployment also with one more GPU, replica or node, half the context, and half of "
        "each limit.",
    )
    chosen: Annotated[Annotated[int, Whole(0, 2**53)] | None, Asked("Deployment", parameter="id")] = Field(
        default=None, description="Id of the deployment to look at; the recommended one by default."
    )
    beside: Annotated[
        Annotated[int, Whole(0, 2**53)] | None,
        Asked("Compare with", option_help="Id of a second deployment, of the other system if one is given."),
    ] = Field(
        default=None,
        description="Id of a second deployment, compared with the first; that of `other_system`, if given, where the "
        "recommended one is the default.",
    )
    other_system: Annotated[
        Named | None, Asked("Other system", option_help="Library name or JSON file of a system to compare with.")
    ] = Field(
        default=None, description="System of the second deployment, by name or as a document; the same by default."
    )

    @field_validator("by")
    @classmethod
    def _check_order(cls, name: str) -> str:
        from engine.serving import HEADLINE

        known = [column.name for column in HEADLINE if column.better]
        if name not in known:
            raise PydanticCustomError("not_accepted", f"one of {', '.join(known)}")
        return name


class DeploymentExportQuestion(Document):
    """Deployment to export as commands or manifests, and its destination."""

    deployment: Deployment
    model: Annotated[Named, Asked("Model", option_help="Library name or JSON file of the model.")] = Field(
        description="Model: a name that `list_models` has, or a whole model document."
    )
    target: Annotated[
        str, Asked("Target", option="to", metavar="|".join(SERVING_TARGETS), option_help="What to write for.")
    ] = Field(description=f"One of {', '.join(SERVING_TARGETS)}.")
    engine: Annotated[
        str | None, Asked("Engine", metavar=_ENGINES, option_help="Serving engine in a manifest; vllm by default.")
    ] = Field(
        default=None,
        description=f"Engine in a manifest: one of {', '.join(ENGINE_NAMES)}; that of the deployment, or vllm, by "
        "default.",
    )
    prefill: Deployment | None = Field(
        default=None, description="Deployment of the pool that processes prompts; `deployment` then only decodes."
    )
    settings: Annotated[
        dict[str, Any],
        Accepts("an object with settings of the engine by name"),
        Asked("Engine settings", option="setting", kind=FieldKind.VALUES, metavar="NAME=VALUE"),
    ] = Field(
        default_factory=dict,
        description="prefix_cache (true or false), chunk [tokens], max_length [tokens], memory_fraction, mtp_tokens, "
        "lora_adapters, lora_rank, host_cache_gib [GiB per GPU], draft_checkpoint, draft_tokens and draft_bits.",
        json_schema_extra={"additionalProperties": True},
    )
    checkpoint: Annotated[str | None, Asked("Checkpoint", metavar="REPOSITORY|PATH")] = Field(
        default=None, description="Weights to serve: a repository on Hugging Face, or a path on the servers."
    )
    gpus_per_node: Annotated[Annotated[int, Whole(1, 2**20)], Asked("GPUs per node", option="gpus-per-node")] = Field(
        default=8, description="GPUs of a machine."
    )


class DeploymentTermsQuestion(Document):
    """Terms for reading the launch configuration of a serving engine."""

    engine: Annotated[
        str | None,
        Asked("Engine", metavar=_ENGINES, option_help="Serving engine of the text; recognised by default."),
    ] = Field(default=None, description=f"One of {', '.join(ENGINE_NAMES)}; recognised by default.")
    variables: Annotated[
        dict[str, Any],
        Accepts("an object with values by name"),
        Asked("Variables", option="env", kind=FieldKind.VALUES, metavar="NAME=VALUE"),
    ] = Field(
        default_factory=dict,
        description="Values of shell variables that the text takes from outside.",
        json_schema_extra={"additionalProperties": True},
    )


class DeploymentImportQuestion(DeploymentTermsQuestion):
    """A launch configuration of a serving engine that is to be read."""

    text: Annotated[str, Text(LONGEST_TEXT, shortest=1)] = Field(
        description="Command line, script, manifest of Kubernetes, llm-d or Dynamo, or YAML of an engine."
    )
    name: Annotated[str, Text(200, shortest=1)] = Field(
        default="serve.sh", description="File name; its ending gives the format."
    )
    num_procs: Annotated[Gpus | None, Asked("GPUs", option="procs")] = Field(
        default=None, description="GPUs in all, from which copies of a command's server follow."
    )
    model: Annotated[Named | None, Asked("Model")] = Field(default=None, description="Model; overrides the text.")
    stated: Annotated[
        dict[str, Any],
        Accepts("an object with values by field name"),
        Asked("Stated values", option="set", kind=FieldKind.VALUES),
    ] = Field(
        default_factory=dict,
        description="Values of fields that the text leaves open, such as prompt and output.",
        json_schema_extra={"additionalProperties": True},
    )
    system: Annotated[Named | None, Asked("System")] = Field(
        default=None, description="System on which the deployment is evaluated; not evaluated by default."
    )


class LoadedModel(ServedModel):
    """Fields of questions about a model under load: statistic and room of the limits, and how the load varies."""

    held_at: Annotated[
        Literal["mean", "p50", "p90", "p99"],
        Asked("Limits hold for", words={"mean": "Mean", "p50": "p50", "p90": "p90", "p99": "p99"}),
    ] = Field(default="p99", description="Statistic of each latency that its limit holds for.")
    mean_first_token_s: Annotated[
        Limit | None, Asked("Mean first token", "s", option="mean-ttft", parameter="mean_ttft", parameter_unit="ms")
    ] = Field(default=None, description="Limit on the mean time to first token besides the others; none by default.")
    mean_per_token_s: Annotated[
        Limit | None, Asked("Mean per token", "s", option="mean-tpot", parameter="mean_tpot", parameter_unit="ms")
    ] = Field(default=None, description="Limit on the mean time per output token besides the others; none by default.")
    room_for_error: Annotated[bool, Asked("Room for error")] = Field(
        default=False,
        description="Hold the limits also at the upper end of the range of most comparable measured servers.",
    )
    request_latency_s: Annotated[Limit | None, Asked("Whole request", "s", option="e2e", parameter="e2e")] = Field(
        default=None, description="Limit on the time of a whole request; none by default."
    )
    arrival_cv: Annotated[float, Number(0, 100), Asked("Arrival variation")] = Field(
        default=1.0,
        description="Coefficient of variation of the times between arrivals: 1 for Poisson's, 0 for regular ones, "
        "above 1 for bursts.",
    )
    prompt_cv: Annotated[float, Number(0, 10), Asked("Prompt variation")] = Field(
        default=0.0, description="Coefficient of variation of the prompt lengths."
    )
    output_cv: Annotated[float, Number(0, 10), Asked("Output variation")] = Field(
        default=0.0, description="Coefficient of variation of the output lengths."
    )


class ServiceQuestion(LoadedModel):
    """Question for the fewest GPUs that serve a load within limits of latency, and the deployment that does."""

    request_rate: Annotated[
        Annotated[float, Number(1e-6, 1e9)] | None,
        Asked("Requests per second", "requests/s", option="rate", parameter="rate"),
    ] = Field(default=None, description="Open load: requests that arrive per second. Give it or `users`.")
    users: Annotated[Annotated[float, Number(1e-6, 1e9)] | None, Asked("Users", parameter="users")] = Field(
        default=None,
        description="Closed load: users who each wait for an answer, think for `think_s`, and send the next request.",
    )
    think_s: Annotated[float, Number(0, 86_400), Asked("Think time", "s", option="think", parameter="think")] = Field(
        default=0.0,
        description="Pause of a user between an answer and the next request, on average; with 0, the default, as many "
        "requests are in flight as users. Requests per second are users / (answer time + think time).",
    )
    num_procs: Annotated[
        Annotated[int, Whole(1, 2**20)] | None,
        Asked("Number of GPUs", option="num-procs", other_option="procs", parameter="procs"),
    ] = Field(default=None, description="GPUs of the service; the fewest that hold the limits by default.")
    most_procs: Annotated[int, Whole(1, 2**20), Asked("Most GPUs")] = Field(
        default=4096, description="Most GPUs that the service may use."
    )
    disaggregated: Annotated[
        Literal["no", "yes", "either"],
        Asked("Prefill and decode", words={"no": "Together", "yes": "In two pools", "either": "Whichever is better"}),
    ] = Field(
        default="no",
        description="Pools of their own for prefill and decode: not tried, recommended in any case, or where they need "
        "fewer GPUs.",
    )
    prefill_system: Annotated[
        Named | None, Asked("Prefill system", option_help="Library name or JSON file of the prefill pool's system.")
    ] = Field(
        default=None,
        description="System of the prefill pool, by name or as a document; the same by default. With two systems of "
        "known prices, the lowest cost is looked for.",
    )
    prefill_limits: Annotated[
        dict[str, Any],
        Accepts("an object with limits by field name"),
        Asked(
            "Prefill limits",
            option="prefill-limit",
            kind=FieldKind.LIMITS,
            metavar="FIELD=VALUES",
            option_help="Values of a field in the prefill pool; may be repeated.",
        ),
    ] = Field(
        default_factory=dict,
        description="Values of fields of the prefill pool where they differ from `limits`. Without an engine here, "
        "both pools have the same one.",
    )
    transfer_gb_per_s: Annotated[
        Annotated[float, Number(1e-3, 1e6)] | None,
        Asked("Link between pools", "GB/s", option="transfer", parameter="transfer"),
    ] = Field(
        default=None,
        description="Rate of a GPU's link between the pools, one way; by default that of the outermost network of the "
        "slower system, at its efficiency.",
    )
    top: Annotated[int, Whole(0, 10_000)] = Field(default=10, description="Best services to list.")


_LIMIT_WORDS: Final = {
    "time_to_first_token_s": "to the first token",
    "time_per_output_token_s": "per token",
    "request_latency_s": "per request",
    "mean_first_token_s": "to the first token on average",
    "mean_per_token_s": "per token on average",
}


def limits_in_words(asked: ServedModel) -> str:
    """Return the limits of latency of a question, defaults included: "1,000 ms to the first token, 50 ms per token".

    Args:
        asked: the question.
    """
    limits = [
        f"{1e3 * limit:,.6g} ms {words}"
        for name, words in _LIMIT_WORDS.items()
        if (limit := getattr(asked, name, None)) is not None
    ]
    return ", ".join(limits) or "none"


class ServersQuestion(Document):
    """Question for a deployment next to measured servers: results of benchmarks of one's own, and the nearest servers.

    With results, batch, prompt and output are theirs.
    """

    model: Annotated[Named, Asked("Model", option_help="Library name or JSON file of the model.")] = Field(
        description="Model: a name that `list_models` has, or a whole model document."
    )
    system: Annotated[Named, Asked("System", option_help="Library name or JSON file of the system.")] = Field(
        description="System: a name that `list_systems` has, or a whole system document."
    )
    deployment: Annotated[
        dict[str, bool | int | float | str | None],
        Accepts("an object with values by field name"),
        Asked("Deployment", option="set", kind=FieldKind.VALUES, option_help="A field of the deployment; repeatable."),
    ] = Field(
        description="Values by field name, such as a row of `find_deployments`: tensor_par, engine, replicas, "
        "weight_bits and so on; with results neither batch, prompt nor output is needed."
    )
    results: Annotated[
        dict[str, Annotated[str, Text(20_000_000, shortest=1)]], Accepts("an object with texts by file name")
    ] = Field(
        default_factory=dict,
        max_length=200,
        description="Text of each result file by its name: of vLLM bench serve, SGLang bench_serving, AIPerf, "
        "genai-perf or GuideLLM.",
    )
    nearest: Annotated[int, Whole(0, 50), Asked("Nearest servers")] = Field(
        default=5, description="Measured servers to list, the nearest first."
    )
    memory_share: Annotated[Annotated[float, Number(0.05, 1.0)] | None, Asked("Memory share")] = Field(
        default=None, description="Share of the memory that the engine may use, such as 0.95; 0.9 by default."
    )
    factors: Annotated[
        Named | None, Asked("Engine factors", option_help="JSON file of measured factors, as --out writes it.")
    ] = Field(
        default=None,
        description="Calibration with factors that the predictions are to have; none by default, and new factors are "
        "measured without them.",
    )
    name: Annotated[str, Text(255), Asked("Name", option_help="Name of the factors.")] = Field(
        default="", description="Name of the factors' calibration; made of the system's by default."
    )
