"""slime: a shell script of `train.py` or `train_async.py` with the arguments of slime, Megatron-LM and SGLang.

Source: THUDM/slime v0.3.1 (a6272da0d): slime/utils/arguments.py, slime/backends/megatron_utils/arguments.py (defaults
that slime sets), slime/backends/megatron_utils/actor.py (passes that are skipped), train.py and train_async.py (pools),
slime/rollout/fully_async_rollout.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from engine.launch.contract import FileContents, LaunchError, LaunchFile, LaunchInputs, UnknownValue, Written
from engine.launch.megatron.framework import command_line
from engine.launch.megatron.parser import flags_by_name, parse_flags
from engine.launch.post_training.contract import RunFramework, RunOrder, RunReading
from engine.launch.post_training.layout_writing import (
    name_unwritten_arguments,
    refuse_if_not_started,
    written_arguments,
)
from engine.launch.post_training.run_settings import RunReader, check_share
from engine.launch.post_training.scripts import command_lines, find_command, quote_value, value_of_word
from engine.launch.post_training.texts import header_lines
from engine.launch.report import LIST_TITLES, OPEN, Report
from engine.launch.serving_engines.model_names import suggested_bits

__all__ = ["SLIME"]

NAME: Final = "slime"
TITLE: Final = "slime"
VERSION: Final = "0.3.1"
PROGRAM: Final = re.compile(r"([\w./$-]{0,200}/)?train(_async)?\.py")
FULLY_ASYNC: Final = "slime.rollout.fully_async_rollout.generate_rollout_fully_async"
NONZERO: Final = "slime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std"
_MODEL_ARGUMENTS: Final = re.compile(r"\"?\$\{?MODEL_ARGS(\[[@*]\])?\}?\"?")
"""Arguments of a model's own script."""
_ARRAY: Final = re.compile(r"\[[@*]\]|\$\{?[@*]")
MARKS: Final = ("rollout-batch-size", "n-samples-per-prompt", "rollout-max-response-len", "hf-checkpoint")
"""Arguments of which a command of slime has two or more."""

DEFAULTS: Final[Mapping[str, Any]] = {
    "actor-num-nodes": 1,
    "actor-num-gpus-per-node": 8,
    "rollout-num-gpus-per-engine": 1,
    "n-samples-per-prompt": 1,
    "advantage-estimator": "grpo",
    "kl-coef": 0.0,
    "use-kl-loss": False,
    "use-rollout-logprobs": False,
    "get-mismatch-metrics": False,
    "keep-old-actor": False,
    "sglang-server-concurrency": 512,
    "sglang-ep-size": 1,
    "sglang-pp-size": 1,
    "update-weights-interval": 1,
    "micro-batch-size": 1,
}
"""Values of slime by argument."""
_MEGATRON_DEFAULTS: Final[Mapping[str, Any]] = {
    "use_distributed_optimizer": True,
    "bf16": True,
    "moe_token_dispatcher_type": "alltoall",
}
"""Values that slime sets in Megatron-LM by itself."""
NOT_MODELLED: Final[Mapping[str, str]] = {
    "sglang-speculative": "drafts of tokens in the rollout.",
    "sglang-enable-dp-attention": "attention by replicas within an engine.",
    "sglang-dp-size": "attention by replicas within an engine.",
    "over-sampling-batch-size": "more samples than are trained.",
    "partial-rollout": "samples that go on in the next step.",
    "prefill-num-servers": "prompts on servers of their own.",
    "custom-generate-function-path": "turns; give the time of tools as tool_s.",
    "rm-url": "a reward model; give its time as reward_s.",
    "use-opd": "a teacher.",
    "enable-mtp-training": "layers for multi-token prediction that are trained.",
    "update-weight-mode": "changes of weights only.",
    "update-weight-transport": "weights by files.",
    "release-train": "training that is started again each step.",
    "sglang-disable-cuda-graph": "a rollout without CUDA graphs.",
}
"""Arguments that change a step and have no setting here, by their beginning."""
WITHOUT_EFFECT: Final = (
    "prompt-data",
    "input-key",
    "label-key",
    "metadata-key",
    "tool-key",
    "multimodal-keys",
    "apply-chat-template",
    "rollout-",
    "rm-",
    "reward-",
    "group-rm",
    "custom-",
    "eval-",
    "n-samples-per-eval-prompt",
    "skip-eval",
    "save",
    "load",
    "ref-",
    "hf-checkpoint",
    "model-name",
    "balance-",
    "use-dynamic-batch-size",
    "log-",
    "advantage-",
    "kl-",
    "use-tis",
    "tis-",
    "use-unbiased-kl",
    "entropy-coef",
    "eps-clip",
    "value-clip",
    "gamma",
    "lambd",
    "normalize-advantages",
    "disable-",
    "use-rollout",
    "use-routing-replay",
    "use-fault-tolerance",
    "use-wandb",
    "wandb",
    "use-tensorboard",
    "tb-",
    "num-epoch",
    "num-gpus-per-node",
    "offload",
    "no-offload",
    "update-weight-buffer-size",
    "train-backend",
    "train-env-vars",
    "train-memory-margin-bytes",
    "megatron-to-hf-mode",
    "ci-test",
    "dump-details",
    "debug-",
    "seed",
    "sglang-",
    "router-",
    "num-critic-only-steps",
    "critic-",
    "get-mismatch-metrics",
    "data-pad-size-multiplier",
    "start-rollout-id",
    "dist-ckpt",
    "qwen-gdn-backend",
    "max-tokens-per-gpu",
)
"""Beginnings of arguments that change no figure here."""
LIMITS: Final[Mapping[str, Any]] = {
    "framework": "megatron",
    "zero_stage": [1],
    "schedule": ["1f1b", "interleaved"],
    "selective_recompute": ["attention", "layernorm", "moe_act+layernorm"],
    "tensor_par_overlap": ["none"],
    "expert_overlap": [False],
    "activations_offload": [False],
    "weight_offload": [False],
    "token_dispatcher": ["all_to_all", "deepep", "hybridep"],
}
REPLACED: Final[Mapping[str, tuple[str, Any]]] = {
    "zero_stage": ("slime always shards the optimizer's states, and nothing else", 1),
    "schedule": ("slime runs 1F1B and interleaved 1F1B", "1f1b"),
    "tensor_par_overlap": ("slime's sequences have no fixed length, as it needs", "none"),
    "expert_overlap": ("slime does not run Megatron's combined schedule", False),
    "activations_offload": ("its time is not that of a step here", False),
    "weight_offload": ("slime has no argument for it", False),
    "token_dispatcher": ("slime changes it for sequences of unequal length", "all_to_all"),
}


def write_script(order: RunOrder) -> Written:
    """Return the script of a run. Raises `LaunchError` where slime would refuse it.

    Args:
        order: run to write.
    """
    report = Report()
    report.not_expressible(*order.replaced)
    report.remark(*order.duties)
    if order.layout.execution["datatype"] not in ("bfloat16", "float16"):
        raise LaunchError(f"slime trains in bfloat16 or float16, not in {order.layout.execution['datatype']}.")
    refuse_if_not_started(order, TITLE)
    _name_mode(order, report)
    arguments = written_arguments(order, report)
    layout = command_line({"": {name: value for name, value in arguments.items() if name not in _SET_BY_SLIME}})
    name_unwritten_arguments(arguments, arguments, TITLE, report, _MEGATRON_DEFAULTS)
    groups: dict[str, dict[str, Any]] = {
        "CHECKPOINT_ARGS": {"--hf-checkpoint": _checkpoint_of(order, report), "--ref-load": '"${REF_LOAD}"'},
        "ROLLOUT_ARGS": _rollout_arguments(order),
        "LAYOUT_ARGS": {**layout, **_pack_arguments(order, report)},
        "METHOD_ARGS": _method_arguments(order, report),
        "SGLANG_ARGS": _engine_arguments(order, report),
    }
    report.not_modelled("MODEL_ARGS, data, reward and optimizer: source scripts/models/NAME.sh, and give yours.")
    lists = {title: report.listed(which) for which, title in LIST_TITLES.items()}
    program = "train.py" if order.is_colocated else "train_async.py"
    pools = _pool_arguments(order)
    lines = [
        "#!/usr/bin/env bash",
        *header_lines(TITLE, VERSION, order, lists, "bash run_slime.sh on the head of a Ray cluster"),
        "set -euo pipefail",
        'source "${MODEL_SCRIPT:?scripts/models/NAME.sh of slime, which sets MODEL_ARGS}"',
        'REF_LOAD="${REF_LOAD:?checkpoint in torch_dist, from tools/convert_hf_to_torch_dist.py}"',
        'PROMPT_DATA="${PROMPT_DATA:?prompts as jsonl}"',
        "export CUDA_DEVICE_MAX_CONNECTIONS=1",
    ]
    for name, values in groups.items():
        lines += ["", f"{name}=(", *(f"   {_argument_words(key, value)}" for key, value in values.items()), ")"]
    start = 'ray job submit --address="http://127.0.0.1:8265" -- python3 ' + program
    words = [_argument_words(key, value) for key, value in pools.items()]
    lines += ["", *command_lines(start, [*words, '"${MODEL_ARGS[@]}"', *(f'"${{{name}[@]}}"' for name in groups)])]
    named = (report.listed(which) for which in ("not_expressible", "not_modelled", "remarks"))
    flags = {key: value for values in (pools, *groups.values()) for key, value in values.items()}
    file = LaunchFile("run_slime.sh", "\n".join(lines) + "\n")
    return Written(NAME, TITLE, VERSION, (file,), {"program": program, **flags}, *named)


_SET_BY_SLIME: Final = frozenset(
    {
        "bf16",
        "use_distributed_optimizer",
        "transformer_impl",
        "cuda_graph_impl",
        "moe_router_load_balancing_type",
        "moe_aux_loss_coeff",
        "moe_grouped_gemm",
        "moe_permute_fusion",
    }
)
"""Arguments that slime or its scripts of models set."""


def _name_mode(order: RunOrder, report: Report) -> None:
    settings, mode = order.settings, str(order.settings["mode"])
    if mode == "asynchronous":
        report.not_expressible(
            f"Staleness {settings['staleness']}: slime's asynchronous rollout has no bound of the age of samples."
        )
    usual = "buckets"
    if mode != "colocated" and settings["synchronisation"] != usual:
        report.not_expressible(f"Weight synchronisation {settings['synchronisation']}: slime sends buckets.")
    if order.replicas["pipeline_par"] > 1:
        report.remark("A replica of the rollout has a pipeline: --sglang-pp-size.")


def _checkpoint_of(order: RunOrder, report: Report) -> str:
    if order.settings["rollout.datatype"] != "float8":
        return order.checkpoint
    report.remark("The rollout's datatype is that of --hf-checkpoint: convert it with tools/convert_hf_to_fp8.py.")
    return f"{order.checkpoint}-FP8"


def _rollout_arguments(order: RunOrder) -> dict[str, Any]:
    settings = order.settings
    found: dict[str, Any] = {}
    if settings["mode"] == "asynchronous":
        found["--rollout-function-path"] = FULLY_ASYNC
    found |= {
        "--prompt-data": '"${PROMPT_DATA}"',
        "--num-rollout": settings["steps"],
        "--rollout-batch-size": settings["prompts"],
        "--n-samples-per-prompt": settings["group"],
        "--rollout-max-response-len": settings["response.cap"],
        "--global-batch-size": order.samples // int(settings["updates"]),
    }
    if settings["method"] == "dapo":
        found["--dynamic-sampling-filter-path"] = NONZERO
    return found


def _pack_arguments(order: RunOrder, report: Report) -> dict[str, Any]:
    context = int(order.layout.execution["context_par"])
    if order.pack_to % context:
        report.not_expressible(f"Packs of {order.pack_to:,} tokens: rounded up to a multiple of {context}.")
    return {"--use-dynamic-batch-size": True, "--max-tokens-per-gpu": -(-order.pack_to // context)}


def _method_arguments(order: RunOrder, report: Report) -> dict[str, Any]:
    settings = order.settings
    found: dict[str, Any] = {"--advantage-estimator": "ppo" if settings["method"] == "ppo" else "grpo"}
    if settings["reference"]:
        found |= {"--use-kl-loss": True, "--kl-loss-coef": 0.001}
    if not settings["old_log_probs"] and settings["updates"] > 1:
        found["--use-rollout-logprobs"] = True
    if settings["old_log_probs"] and settings["updates"] == 1:
        found["--keep-old-actor"] = True
        report.remark("--keep-old-actor: with one update per step slime leaves old log-probabilities out otherwise.")
    return found


def _engine_arguments(order: RunOrder, report: Report) -> dict[str, Any]:
    settings, replicas = order.settings, order.replicas
    report.remark("SGLang's share of memory is of weights and KV cache, without activations and graphs.")
    found: dict[str, Any] = {
        "--rollout-num-gpus-per-engine": replicas["tensor_par"] * replicas["pipeline_par"],
        "--sglang-mem-fraction-static": settings["rollout.memory_share"],
        "--sglang-server-concurrency": settings["rollout.max_sequences"],
    }
    if replicas["pipeline_par"] > 1:
        found["--sglang-pp-size"] = replicas["pipeline_par"]
    if replicas["expert_par"] > 1:
        found["--sglang-ep-size"] = replicas["expert_par"]
    return found


def _pool_arguments(order: RunOrder) -> dict[str, Any]:
    nodes = order.nodes_of(order.gpus_train)
    found: dict[str, Any] = {
        "--actor-num-nodes": nodes,
        "--actor-num-gpus-per-node": order.gpus_train // nodes,
        "--num-gpus-per-node": order.gpus_per_node,
    }
    return found | ({"--colocate": True} if order.is_colocated else {"--rollout-num-gpus": order.gpus_rollout})


def _argument_words(key: str, value: Any) -> str:
    if value is True:
        return key
    items = value if isinstance(value, list | tuple) else [value]
    return " ".join((key, *(quote_value(each) for each in items)))


def find_script(text: str, name: str, files: Mapping[str, str]) -> FileContents | None:
    """Return the arguments of a script; None for one that does not start slime.

    Args:
        text: of the script.
        name: of the file.
        files: unused.
    """
    if sum(mark in text for mark in MARKS) < 2:
        return None
    command = find_command(text, name, lambda word: PROGRAM.fullmatch(word) is not None)
    if command is None:
        return None
    words, place, unread = list(command.words), 0, []
    while place < len(words):
        word = words[place]
        place += 1
        if command.hide(word):
            continue
        if not word.text.startswith("--") or len(word.text) < 3:
            unread.append(f"{word.text[:80]} stands behind no argument.")
            continue
        key, equals, value = word.text[2:].partition("=")
        if equals:
            command.put(key, value_of_word(word, value), word)
            continue
        values = []
        at = word
        while place < len(words) and not words[place].text.startswith("--"):
            if not words[place].text and _ARRAY.search(" ".join(words[place].unknown)):
                break  # arguments that an array holds
            at = words[place]
            values.append(value_of_word(at, at.text))
            place += 1
        command.put(key, True if not values else values[0] if len(values) == 1 else values, at if values else word)
    command.flags["program"] = command.program.rpartition("/")[2]
    return FileContents(command.flags, unread=tuple(unread), remarks=tuple(command.remarks), origins=command.origins)


def read_arguments(contents: FileContents, asked: LaunchInputs) -> RunReading:
    """Return the run of a script's arguments.

    Args:
        contents: of the script.
        asked: what the caller states.
    """
    flags = dict(contents.flags)
    program = str(flags.pop("program", "train.py"))
    origins = {**contents.origins, **{f"--{key}": each for key, each in contents.origins.items()}}
    # Arguments of a model's own script: they say its shape, which the checkpoint's name says here.
    flags = {
        key: value
        for key, value in flags.items()
        if not (isinstance(value, UnknownValue) and key == value.expression and _MODEL_ARGUMENTS.fullmatch(key))
    }
    reader = RunReader(f"{TITLE} {VERSION}", flags, replace(asked, origins=origins), DEFAULTS)
    missing = [each for each in contents.remarks if "/models/" not in each]
    reader.report.remark(*missing)
    reader.report.unread(*contents.unread)
    s, say = reader.settings, reader.say
    if reader.value_of(lambda: s.word("loss-type")) == "sft_loss":
        raise LaunchError("The script runs supervised fine-tuning (--loss-type sft_loss), not reinforcement learning.")
    reader.read_model("hf-checkpoint")
    say("method", partial(_read_method, reader))
    _read_mode(reader, program)
    say("prompts", lambda: s.whole("rollout-batch-size") or OPEN)
    if not s.hidden and not s.is_stated("rollout-batch-size"):
        reader.report.refuse("--rollout-batch-size is missing, which slime requires")
    say("group", lambda: s.whole("n-samples-per-prompt"))
    _read_updates(reader)
    say("steps", lambda: s.whole("num-rollout") or OPEN)
    say("reference", lambda: s.truth("use-kl-loss") or (s.number("kl-coef") or 0) != 0)
    say("old_log_probs", partial(_has_old_log_probs, reader))
    reader.read_lengths(None, partial(_longest_response, reader))
    _read_rollout(reader)
    _read_training(reader)
    say("pack_to", partial(_read_packs, reader))
    own = {key for key in s.given if f"--{key}" in flags_by_name()}
    reader.name_rest(NOT_MODELLED, WITHOUT_EFFECT, own)
    return reader.reading(NAME, TITLE, VERSION)


def _read_method(reader: RunReader) -> str:
    s = reader.settings
    word = s.word("advantage-estimator").lower()
    if word == "ppo":
        return "ppo"
    if word != "grpo":
        reader.report.remark(f"--advantage-estimator {word[:40]} costs what GRPO costs; it is read as that.")
    path = s.word("dynamic-sampling-filter-path")
    return "dapo" if "nonzero_std" in path else "grpo"


def _read_mode(reader: RunReader, program: str) -> None:
    s = reader.settings

    def mode() -> Any:
        if s.truth("colocate"):
            return "colocated"
        if program != "train_async.py":
            reader.report.remark("train.py without --colocate: two pools that take turns, which no mode here does.")
            return OPEN
        if "fully_async" in s.word("rollout-function-path"):
            return "asynchronous"
        if (s.whole("update-weights-interval") or 1) > 1:
            reader.report.remark("--update-weights-interval above 1: older samples, read as one step off.")
        return "one_step_off"

    def train() -> int:
        reader.gpus_per_node = s.whole("actor-num-gpus-per-node")
        return (reader.gpus_per_node or 1) * (s.whole("actor-num-nodes") or 1)

    reader.say("mode", mode)
    if reader.known("mode") == "asynchronous":
        reader.report.remark("slime's asynchronous rollout has no bound of staleness: state one.")
        reader.say("staleness", lambda: OPEN)
    if reader.value_of(lambda: s.truth("colocate")):
        s.asked.add("rollout-num-gpus")
        reader.read_gpus(train, None)
    else:
        reader.read_gpus(train, lambda: s.whole("rollout-num-gpus") or _refuse_missing("rollout-num-gpus"))
        reader.say("synchronisation", lambda: "buckets")


def _refuse_missing(name: str) -> Any:
    raise LaunchError(f"--{name} is missing: without --colocate it gives the GPUs of the rollout.")


def _read_updates(reader: RunReader) -> None:
    s, e = reader.settings, reader.report.execution
    if s.is_stated("num-steps-per-rollout"):
        reader.say("updates", lambda: s.whole("num-steps-per-rollout"))
        s.asked.add("global-batch-size")
        return

    def batch() -> int:
        return s.whole("global-batch-size") or int(e["prompts"]) * int(e["group"])

    reader.read_updates(batch, "--global-batch-size")


def _has_old_log_probs(reader: RunReader) -> bool:
    s, e = reader.settings, reader.report.execution
    if s.truth("use-rollout-logprobs"):
        return s.truth("get-mismatch-metrics")
    # With one update the loss has them by itself: slime/backends/megatron_utils/actor.py, `train_actor`.
    others = (
        s.truth("get-mismatch-metrics")
        or s.truth("keep-old-actor")
        or (s.number("kl-coef") or 0) != 0
        or s.word("advantage-estimator") in ("gspo", "ppo")
    )
    return int(e["updates"]) > 1 or others


def _longest_response(reader: RunReader) -> Any:
    found = reader.settings.whole("rollout-max-response-len")
    if found is None:
        raise reader.report.unknown("rollout-max-response-len", UnknownValue("not said"))
    return found


def _read_rollout(reader: RunReader) -> None:
    s, say = reader.settings, reader.say

    def engine() -> int:
        gpus = s.whole("rollout-num-gpus-per-engine") or 1
        stages = s.whole("sglang-pp-size") or 1
        return max(gpus // stages, 1)

    def sequences() -> Any:
        most = s.whole("sglang-max-running-requests")
        slots = s.whole("sglang-server-concurrency") or 1
        return slots if most is None else min(most, slots)

    reader.report.not_modelled("SGLang generates there; times of the rollout are those of vLLM.")
    say(
        "rollout.datatype",
        lambda: "float8" if (suggested_bits(s.word("hf-checkpoint")) or (16, ""))[0] == 8 else "bfloat16",
    )
    say("rollout.tensor_par", lambda: [engine()])
    share = "sglang-mem-fraction-static"
    say("rollout.memory_share", lambda: OPEN if s.number(share) is None else check_share(s.number(share), share))
    say("rollout.max_sequences", sequences)
    reader.read_replicas(
        pipeline=lambda: s.whole("sglang-pp-size") or 1,
        expert=lambda: s.whole("sglang-ep-size") or 1,
        pipeline_key="sglang-pp-size",
    )


def _read_packs(reader: RunReader) -> Any:
    s = reader.settings
    if not s.truth("use-dynamic-batch-size"):
        reader.report.not_modelled("--micro-batch-size without --use-dynamic-batch-size: the plan packs samples.")
        return OPEN
    tokens = s.whole("max-tokens-per-gpu")
    context = reader.layout.execution.known("context_par")
    if tokens is None or context is None:
        return OPEN
    cap, packs = reader.known("response.cap"), tokens * int(context)
    if isinstance(cap, int) and packs <= cap:
        reader.report.remark(f"Longer samples than {packs:,} tokens are packs of their own; the longest counts.")
        return OPEN
    return packs


def _read_training(reader: RunReader) -> None:
    s = reader.settings
    hidden = reader.hidden_value()
    flags = {f"--{key}": value for key, value in s.given.items() if f"--{key}" in flags_by_name()}
    names: dict[str, str] = {}
    parsed = parse_flags(flags, Report(), names)
    said = {name: value for name, value in parsed.items() if name not in _SET_BY_SLIME}
    said.pop("global_batch_size", None)
    for name in list(said):
        if name in _OF_MODEL:
            del said[name]
    if said.get("fp16"):
        said.pop("bf16", None)
    else:
        said["bf16"], names["bf16"] = True, "slime, which sets --bf16"
    said["use_distributed_optimizer"], names["use_distributed_optimizer"] = True, "slime, which always shards it"
    if hidden is not None:
        for name in ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"):
            said.setdefault(name, hidden)
    reader.read_layout(said, _MEGATRON_DEFAULTS, names)


_OF_MODEL: Final = frozenset(
    {
        "num_layers",
        "hidden_size",
        "ffn_hidden_size",
        "num_attention_heads",
        "num_query_groups",
        "group_query_attention",
        "kv_channels",
        "seq_length",
        "max_position_embeddings",
        "vocab_size",
        "num_experts",
        "moe_ffn_hidden_size",
        "moe_router_topk",
        "moe_layer_freq",
        "multi_latent_attention",
    }
)
"""Arguments of the model's shape, which the checkpoint's name says here."""

SLIME: Final = RunFramework(
    name=NAME,
    title=TITLE,
    aliases=("thudm-slime",),
    version=VERSION,
    source="THUDM/slime v0.3.1, slime/utils/arguments.py and slime/backends/megatron_utils",
    limits=LIMITS,
    replaced=REPLACED,
    synchronisation=dict.fromkeys(("one_step_off", "asynchronous"), "buckets"),
    terms={
        "prompts": "--rollout-batch-size",
        "group": "--n-samples-per-prompt",
        "response.cap": "--rollout-max-response-len",
        "updates": "--global-batch-size, --num-steps-per-rollout",
        "mode": "--colocate, train_async.py, --rollout-function-path",
        "split": "--actor-num-nodes, --rollout-num-gpus",
        "rollout.tensor_par": "--rollout-num-gpus-per-engine",
        "rollout.memory_share": "--sglang-mem-fraction-static",
    },
    write=write_script,
    find=find_script,
    read=read_arguments,
)
"""slime on Megatron-LM with SGLang."""
