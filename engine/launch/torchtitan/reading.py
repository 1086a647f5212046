"""A configuration of torchtitan as an execution.

Three dialects share the name: files in TOML (0.2.2 and before), command lines of 0.3.0, which count batches in
sequences, and command lines of the main branch of August 2026, which count in tokens. The dialect follows from keys
that only one of them has. Source: torchtitan/config of the wheels 0.2.2 and 0.3.0 and of the commit b5bcd76c
(BSD-3-Clause).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

from engine.launch.contract import LaunchError, LaunchInputs, LaunchReading
from engine.launch.key_lists import read_key_lists
from engine.launch.named_models import library_shape
from engine.launch.not_expressible import read_expert_load
from engine.launch.report import OPEN, OpenValue, Report
from engine.launch.settings import LaunchSettings
from engine.launch.torchtitan.cuts import read_cut
from engine.launch.torchtitan.flavors import CONFIGS, library_model
from models import datatypes
from models.datatypes import Datatype

__all__ = ["read_configuration"]

_TOKENS: Final = "training.num_tokens_per_microbatch_per_dp_rank"
_STEP_TOKENS: Final = "training.num_tokens_per_train_step"
_SHARD: Final = "parallelism.data_parallel_shard_degree"
_HEAD_ONLY: Final = frozenset({_TOKENS, _STEP_TOKENS, "training.max_context_length", "parallelism.num_pp_microbatches"})
_OLD_ONLY: Final = ("model.", "activation_checkpoint.", "quantize.", "job.")
_LISTS: Final = read_key_lists("torchtitan")
_IGNORED: Final = tuple(_LISTS["without effect"])
"""Keys about data, logging and the like, of which no execution says anything."""
_READ_WHERE_IT_COUNTS: Final = frozenset(
    {
        "parallelism.fsdp_reshard_after_forward",
        "parallelism.context_parallel_rotate_method",
        "parallelism.expert_tensor_parallel_degree",
        "parallelism.pipeline_parallel_microbatch_size",
        "parallelism.pipeline_parallel_layers_per_stage",
        "parallelism.pipeline_parallel_first_stage_less_layers",
        "parallelism.pipeline_parallel_last_stage_less_layers",
        "parallelism.module_fqns_per_model_part",
        "parallelism.enable_async_tensor_parallel",
        "compile.enable_async_tensor_parallel",
        "compile.components",
        "training.local_batch_size",
        "training.global_batch_size",
        "training.mixed_precision_param",
        "training.disable_cuda_graphs",
        "activation_checkpoint.selective_ac_option",
        "parallelism.num_pp_microbatches",
        "parallelism.pipeline_parallel_schedule",
        "parallelism.pipeline_parallel_expert_parallel_overlap",
        "parallelism.data_parallel_replicate_degree",
        "parallelism.enable_sequence_parallel",
        "compile.enable",
        "training.num_tokens_per_microbatch_per_dp_rank",
    }
)
"""Keys that count only together with others, such as the keys of a pipeline."""
_SINGLE: Final = frozenset({"1f1b", "gpipe", "pipelineschedulesingle"})
_V_SHAPED: Final = {"zbvzerobubble": "zb_v", "dualpipev": "dualpipev"}


def dialect_of(settings: LaunchSettings) -> str:
    """Returns "0.2.2", "0.3.0" or "main", the dialect in which a configuration is written.

    Args:
        settings: keys and values of the configuration.
    """
    if _HEAD_ONLY & set(settings.given):
        return "main"
    if any(name.startswith(_OLD_ONLY) for name in settings.given):
        return "0.2.2"
    return "0.3.0" if {"module", "config"} & set(settings.given) else "0.2.2"


def read_configuration(flags: Mapping[str, Any], asked: LaunchInputs) -> LaunchReading:
    """Return the execution that a configuration of torchtitan describes.

    Args:
        flags: values by key, such as "parallelism.tensor_parallel_degree"; of functions also "module" and "config".
        asked: what the caller states beside it; torchtitan's files do not say the number of GPUs.

    Raises LaunchError where a value is of no use, or degrees do not multiply to the GPUs.
    """
    report = Report("torchtitan", asked)
    settings = LaunchSettings(flags, report)
    dialect = dialect_of(settings)
    _read_model(settings, report, dialect)
    _read_degrees(settings, report, dialect)
    _read_batch(settings, report, dialect)
    _read_pipeline(settings, report)
    read_cut(settings, report)
    _read_recompute(settings, report, dialect)
    _read_software(settings, report, dialect)
    _read_overlap(settings, report, dialect)
    report.say("training", lambda: True)
    _list_rest(settings, report, dialect)
    report.remark(*(f"{each} is not at hand; it may hold keys." for each in settings.hidden if "$" in each.expression))
    return report.reading("torchtitan", dialect, flags)


def _read_model(settings: LaunchSettings, report: Report, dialect: str) -> None:
    try:
        family, flavor = settings.word("model.name"), settings.word("model.flavor")
        module, function = settings.word("module"), settings.word("config")
    except OpenValue as signal:
        report.leave("model shape")
        report.open_model(signal.origin)
    else:
        found = key = None
        if flavor:
            found, key = library_model(family, flavor), "model.flavor"
        elif function:
            found, key = next((each.model for each in CONFIGS if each.function == function), None), "config"
        if found is not None and key is not None:
            report.start_model(library_shape(found), report.origin_of(key))
        else:
            report.leave("model shape")
            named = f"{family or module} {flavor or function}".strip()
            if named:
                report.remark(f"torchtitan's flavor {named} is not known here; give the model beside it.")
    key = "training.max_context_length" if dialect == "main" else "training.seq_len"
    usual = 2048 if dialect == "0.2.2" else None
    report.describe("seq", lambda: settings.whole(key, usual))
    if "seq" not in report.model.origins:
        report.leave("sequence length")
    if "kv_heads" in report.model.origins:
        report.say(
            "attention_type",
            lambda: "multiquery" if report.model["kv_heads"] == 1 else "multihead",
            "from key and value heads",
        )


def _read_degrees(settings: LaunchSettings, report: Report, dialect: str) -> None:
    e, say = report.execution, report.say
    say("tensor_par", lambda: settings.whole("parallelism.tensor_parallel_degree", 1))
    say("pipeline_par", lambda: settings.whole("parallelism.pipeline_parallel_degree", 1))
    say("context_par", lambda: settings.whole("parallelism.context_parallel_degree", 1))

    def copies() -> int:
        return settings.whole("parallelism.data_parallel_replicate_degree", 1) or 1

    def shard() -> int:
        """Ranks over which weights are sharded, negative where they are what other degrees leave of the GPUs."""
        return settings.whole(_SHARD, -1, least=-1) or -1

    def others() -> int:
        return int(e["tensor_par"]) * int(e["pipeline_par"]) * int(e["context_par"])

    def gpus() -> Any:
        told = report.told_gpus()
        if shard() < 0:
            return told
        product = shard() * copies() * others()
        if told is not OPEN and told != product:
            raise LaunchError(
                f"The degrees multiply to {product:,} GPUs, not to {told:,}; torchtitan asks for exactly their product."
            )
        return product

    def replicas() -> int:
        if shard() > 0:
            return copies() * shard()
        each, total = copies() * others(), int(e["num_procs"])
        if total % each:
            raise LaunchError(
                f"Degrees of {each:,} do not divide {total:,} GPUs, so none are left to shard the weights over; give "
                "another number of GPUs."
            )
        return copies() * (total // each)

    def sharding() -> int:
        each, context = int(e["data_par"]) // copies(), int(e["context_par"])
        return _zero_stage(settings, report, copies(), each * context)

    say("num_procs", gpus)
    say("data_par", replicas, "GPUs / (tensor x pipeline x context parallel)")
    say("zero_stage", sharding)
    say("optimizer_sharding", lambda: e["zero_stage"] >= 1)
    e.origins["optimizer_sharding"] = e.origins["zero_stage"]

    def rotation() -> Any:
        # PyTorch's alltoall passes keys and values from rank to rank, step by step.
        method = settings.word("parallelism.context_parallel_rotate_method", "allgather")
        if e["context_par"] == 1 or dialect != "0.2.2":
            return "p2p"
        found = {"allgather": "all_gather", "alltoall": "p2p"}.get(method)
        if found is None:
            report.not_modelled(f"parallelism.context_parallel_rotate_method {method}"[:200])
        return found or OPEN

    say("context_par_comm", rotation)
    _read_experts(settings, report, dialect)


def _zero_stage(settings: LaunchSettings, report: Report, copies: int, shared: int) -> int:
    policy = settings.word("parallelism.fsdp_reshard_after_forward", "default").lower()
    if policy not in ("default", "always", "never"):
        raise LaunchError(f"fsdp_reshard_after_forward is {policy!r}; torchtitan knows default, always and never.")
    pipelined = report.execution["pipeline_par"] > 1
    if shared == 1:
        stage = 0
    elif policy == "always" or (policy == "default" and not pipelined):
        stage = 3
    else:
        stage = 1 if pipelined else 2
    if stage == 1:
        report.remark("FSDP under a pipeline keeps gathered weights for the step; read as ZeRO 1.")
    if copies > 1 and shared > 1:
        report.remark(f"Weights are sharded within {copies} groups of replicas; read as sharded over all.")
    return stage


def _read_experts(settings: LaunchSettings, report: Report, dialect: str) -> None:
    e = report.execution
    report.say("expert_par", lambda: settings.whole("parallelism.expert_parallel_degree", 1))

    def split() -> Any:
        given = settings.whole("parallelism.expert_tensor_parallel_degree", 1) or 1
        experts = report.model.get("experts", 0 if "layers" in report.model else None)
        if e["expert_par"] > 1:
            return given if dialect == "0.2.2" else 1
        if experts is None:
            return OPEN if e["tensor_par"] > 1 else 1
        # Without expert parallelism experts are split as everything is, whatever the key says.
        return e["tensor_par"] if experts else 1

    def dispatcher() -> Any:
        word = settings.word("parallelism.expert_parallel_comm_backend", "standard")
        found = {"standard": "all_to_all", "deepep": "deepep"}.get(word)
        if found is None:
            report.not_modelled(f"parallelism.expert_parallel_comm_backend {word}"[:200])
        return found or OPEN

    report.say("expert_tensor_par", split)
    report.say("token_dispatcher", dispatcher)
    report.say("dispatch_datatype", lambda: "bfloat16")
    read_expert_load(report)


def _read_batch(settings: LaunchSettings, report: Report, dialect: str) -> None:
    e = report.execution
    if dialect == "main":
        report.say("microbatch_size", lambda: _or_open(_count_sequences(settings, report, _TOKENS)))
        report.say("batch_size", lambda: _batch_of_tokens(settings, report))
        return
    default = 8 if dialect == "0.2.2" else None

    def local() -> int | None:
        return settings.whole("training.local_batch_size", default)

    def micro() -> Any:
        small = settings.whole("parallelism.pipeline_parallel_microbatch_size", 1)
        return _or_open(small if e["pipeline_par"] > 1 else local())

    def batch() -> Any:
        found = settings.whole("training.global_batch_size", -1, least=-1)
        if found is not None and found > 0:
            return found
        each = local()
        return OPEN if each is None else each * int(e["data_par"])

    report.say("microbatch_size", micro)
    report.say("batch_size", batch)


def _or_open(value: Any) -> Any:
    return OPEN if value is None else value


def _count_sequences(settings: LaunchSettings, report: Report, key: str) -> int | None:
    """Sequences of a number of tokens."""
    tokens = settings.whole(key)
    if tokens is None or "seq" not in report.model:
        return None
    sequence = int(report.model["seq"])
    if tokens % sequence:
        raise LaunchError(
            f"{key} is {tokens:,}, no whole number of sequences of {sequence:,} tokens; sequences are not cut here."
        )
    return tokens // sequence


def _batch_of_tokens(settings: LaunchSettings, report: Report) -> Any:
    step = settings.whole(_STEP_TOKENS, -1, least=-1)
    microbatches = settings.whole("parallelism.num_pp_microbatches", 1) or 1
    if step is not None and step > 0:
        return _or_open(_count_sequences(settings, report, _STEP_TOKENS))
    micro = _count_sequences(settings, report, _TOKENS)
    passes = microbatches if report.execution["pipeline_par"] > 1 else 1
    return OPEN if micro is None else micro * passes * int(report.execution["data_par"])


def _read_pipeline(settings: LaunchSettings, report: Report) -> None:
    e = report.execution

    def schedule() -> str:
        return settings.word("parallelism.pipeline_parallel_schedule", "1F1B")

    def single() -> bool:
        return e["pipeline_par"] == 1 or schedule().lower() in _SINGLE

    report.say("pipeline_interleaving", lambda: 1 if single() else _chunks_of(settings, report))
    report.say("pipeline_overlap", lambda: False)
    report.say_if_any("schedule", lambda: None if single() else _V_SHAPED.get(schedule().lower()))

    def notes() -> None:
        kind = schedule().lower()
        if settings.has("parallelism.pipeline_parallel_schedule_csv"):
            report.not_modelled("parallelism.pipeline_parallel_schedule_csv")
        if e["pipeline_par"] > 1 and kind in _SINGLE and kind != "1f1b":
            report.not_modelled(f"parallelism.pipeline_parallel_schedule {schedule()}; read as 1F1B")
        elif not single() and kind not in _V_SHAPED and kind != "interleaved1f1b":
            report.not_modelled(f"parallelism.pipeline_parallel_schedule {schedule()}; read as interleaved 1F1B")

    report.note(notes)


def _chunks_of(settings: LaunchSettings, report: Report) -> Any:
    """Chunks of every rank under a schedule of several."""
    layers = settings.whole("parallelism.pipeline_parallel_layers_per_stage")
    first = settings.whole("parallelism.pipeline_parallel_first_stage_less_layers", 1, least=0) or 0
    last = settings.whole("parallelism.pipeline_parallel_last_stage_less_layers", 1, least=0) or 0
    parts, pipeline = settings.raw("parallelism.module_fqns_per_model_part"), int(report.execution["pipeline_par"])
    if isinstance(parts, list) and parts:
        return _count_chunks(len(parts), pipeline, report)
    if layers is None:
        return 2
    if "layers" not in report.model:
        return OPEN
    return _count_chunks(math.ceil((report.model["layers"] + first + last) / layers), pipeline, report)


def _count_chunks(stages: int, pipeline: int, report: Report) -> Any:
    if stages % pipeline:
        report.remark(f"{stages} stages on {pipeline} pipeline ranks: torchtitan refuses this.")
        return OPEN
    return stages // pipeline


def _read_recompute(settings: LaunchSettings, report: Report, dialect: str) -> None:

    def rule() -> tuple[Any, Any]:
        if dialect == "0.2.2":
            kind = settings.word("activation_checkpoint.mode", "selective").lower()
            given = settings.given.get("activation_checkpoint.mode")
            if isinstance(given, str) and given.strip().lower() == "none":
                kind = "none"  # a word here, which elsewhere stands for nothing
            option = settings.word("activation_checkpoint.selective_ac_option", "2").lower()
        else:
            given = settings.given.get("activation_checkpoint", "")
            kind = settings.word("activation_checkpoint").lower().removesuffix("ac").replace("-", "_")
            kind = "none" if isinstance(given, str) and given.strip().lower() == "none" else kind
            option = "op"
        if kind in ("none", "full"):
            return kind, "attention"
        if kind == "selective":
            if option not in ("op", "2"):
                report.remark(f"Every {option}th block is recomputed; the nearest here is every second one.")
            return "attn_only", "operators" if option == "op" else "half"
        if kind in ("memory_budget", "memorybudget"):
            settings.asked.add("activation_checkpoint.memory_budget")
            report.not_modelled("activation_checkpoint memory budget")
            return OPEN, OPEN
        if not kind and dialect != "0.2.2":
            return OPEN, OPEN
        raise LaunchError(f"activation_checkpoint is {kind!r}; torchtitan knows none, selective, full, memory_budget.")

    report.say(("activation_recompute", "selective_recompute"), rule)
    report.say("recompute_blocks", lambda: 0)


def _read_software(settings: LaunchSettings, report: Report, dialect: str) -> None:
    e, say = report.execution, report.say

    def datatype() -> str:
        function = settings.word("config")
        kinds = [each.lower() for each in settings.words("model.converters")]
        found = [_narrow_datatype(each) for each in kinds]
        strange = [kind for kind, each in zip(kinds, found, strict=True) if each is None]
        if strange:
            report.not_modelled(f"model.converters {', '.join(strange)}"[:200])
        named = [each for each in (*found, _narrow_datatype(function)) if each is not None]
        if kinds and named:
            return min(named, key=lambda each: each.bits).name
        if function:
            usual = named[0].name if named else "bfloat16"
            return next((each.datatype for each in CONFIGS if each.function == function), usual)
        return settings.word("training.mixed_precision_param", "bfloat16")

    def launch() -> str:
        compiled = settings.truth("compile.enable") and "model" in settings.words(
            "compile.components", ("model", "loss")
        )
        kind = "compiled" if compiled else "eager"
        if dialect == "0.2.2":
            return kind
        graphs = not settings.truth("training.disable_cuda_graphs")
        possible = e["pipeline_par"] == 1 and e["expert_par"] == 1
        return "graphs" if graphs and possible else kind

    say("datatype", datatype)
    say("gradient_datatype", lambda: "float32")
    say("optimizer_datatype", lambda: "float32")
    say("fp8_param_gather", lambda: False)
    say("launch", launch)
    say("attention_kernel", lambda: OPEN)
    say(("weight_offload", "optimizer_offload"), lambda: settings.truth("training.enable_cpu_offload"))
    say("activations_offload", lambda: False)

    def notes() -> None:
        if settings.word("training.dtype", "float32") != "float32":
            report.not_modelled("training.dtype bfloat16 (no copy of the weights in FP32)")
        if settings.truth("parallelism.enable_fsdp_symm_mem"):
            report.not_modelled("parallelism.enable_fsdp_symm_mem")

    report.note(notes)


def _read_overlap(settings: LaunchSettings, report: Report, dialect: str) -> None:
    e = report.execution

    def gathered() -> tuple[str, bool]:
        on = settings.truth("parallelism.enable_sequence_parallel", True) or dialect == "0.2.2"
        on = on and e["tensor_par"] > 1
        return "rs_ag" if on else "ar", on

    def ring() -> str:
        # The switch of 0.2.2 and of later versions; it does nothing unless the model is compiled.
        asked = [settings.truth(f"{room}.enable_async_tensor_parallel") for room in ("parallelism", "compile")]
        on = any(asked) and e["tensor_par"] > 1 and settings.truth("compile.enable")
        return "ring" if on and "model" in settings.words("compile.components", ("model", "loss")) else "none"

    def experts() -> bool:
        overlap = settings.truth("parallelism.pipeline_parallel_expert_parallel_overlap", True)
        return bool(
            overlap and e.get("schedule") == "dualpipev" and e["expert_par"] > 1 and e["activation_recompute"] == "none"
        )

    report.say(("tensor_par_comm_type", "seq_par_ag_redo"), gathered)
    report.say("tensor_par_overlap", ring)
    report.say("data_par_overlap", lambda: e["context_par"] > 1 or e["data_par"] > 1)
    report.say("expert_overlap", experts)


def _list_rest(settings: LaunchSettings, report: Report, dialect: str) -> None:
    for name in settings.rest():
        value = settings.given[name]
        if name in _READ_WHERE_IT_COUNTS and name in _keys_of(dialect):
            continue
        if name.startswith(("quantize.", "float8.", "mx.")):
            if value not in (False, "", None, []):
                report.not_modelled(name)
        elif name.startswith(_IGNORED):
            report.without_effect(name)
        elif name in known_keys():
            report.not_modelled(f"{name} {value}"[:200])
        else:
            report.unread(name)


@lru_cache(maxsize=1)
def known_keys() -> frozenset[str]:
    """Returns every key of torchtitan's three dialects."""
    text = (files("engine.launch.torchtitan") / "parser_keys.json").read_text("utf-8")
    return frozenset(row[0] for row in json.loads(text)["keys"])


@lru_cache(maxsize=4)
def _keys_of(dialect: str) -> frozenset[str]:
    text = (files("engine.launch.torchtitan") / "parser_keys.json").read_text("utf-8")
    others = {"0.2.2": ("0.3.0", "main"), "0.3.0": ("0.2.2", "main"), "main": ("0.2.2",)}[dialect]
    rows = json.loads(text)["keys"]
    return frozenset(row[0] for row in rows) - (
        frozenset(row[0] for row in rows if row[-1] in others)
        - frozenset(row[0] for row in rows if row[-1] not in others)
    )


def _narrow_datatype(text: str) -> Datatype | None:
    """Return the datatype below 16 bits by the longest word in a converter's or function's name; None without one."""
    words = sorted(datatypes.words_of_program("torchtitan"), key=len, reverse=True)
    found = (datatypes.spelled("torchtitan", word) for word in words if word in text.lower())
    return next((each for each in found if each is not None and each.bits < 16), None)
