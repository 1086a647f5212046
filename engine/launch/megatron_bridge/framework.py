"""Megatron-Bridge, NeMo's way to train with Megatron-Core: recipes as Python, with keys of one configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import models
from engine.launch.command_words import CommandWords, launch_in
from engine.launch.contract import (
    FileContents,
    LaunchError,
    LaunchFile,
    LaunchInputs,
    LaunchOrder,
    LaunchReading,
    Origin,
    UnknownValue,
    Written,
)
from engine.launch.launchers import script_header, torchrun_command
from engine.launch.megatron.arguments import Arguments, Dialect, hidden_areas
from engine.launch.megatron.constraints import check_arguments
from engine.launch.megatron.framework import environment_of
from engine.launch.megatron.model_reading import read_model
from engine.launch.megatron.parser import flags_of, name_effects
from engine.launch.megatron.reading import read_execution
from engine.launch.megatron.writing import Groups, groups_of
from engine.launch.megatron_bridge.keys import KEYS, PRECISIONS, TERMS
from engine.launch.megatron_bridge.nemo_keys import is_nemo
from engine.launch.megatron_bridge.recipe_text import BASE, RecipeKeys, from_python, from_words, from_yaml
from engine.launch.report import Report, parse_flag
from engine.launch.settings import is_hidden
from engine.launch.shapes import shape_of

__all__ = ["MEGATRON_BRIDGE", "MegatronBridge"]

BRIDGE: Final = Dialect("Megatron-Bridge", False, "bfloat16", False, True, True, overlaps_gradients=True)
_ARGUMENTS: Final = {key: argument for argument, key in KEYS.items()}
_MARKS: Final = (
    "model.",
    "train.",
    "ddp.",
    "comm_overlap.",
    "optimizer.",
    "mixed_precision",
    "--recipe",
    "trainer.",
    "+model.",
    "++model.",
    "+trainer.",
    "++trainer.",
    "optim.",
    "data.",
)
_GPUS: Final = re.compile(r"_(\d{1,6})gpus?_")
_TORCHRUN: Final = re.compile(r"--nproc[_-]per[_-]node[= ](\d{1,4})\s+--nnodes[= ](\d{1,6})")
_RECIPES: Final[tuple[tuple[str, str], ...]] = (
    ("llama31_405b", "llama-3.1-405B"),
    ("llama31_70b", "llama-3.1-70B"),
    ("llama31_8b", "llama-3.1-8B"),
    ("llama3_70b", "llama-3-70B"),
    ("llama3_8b", "llama-3-8B"),
    ("llama32_1b", "llama-3.2-1B"),
    ("llama32_3b", "llama-3.2-3B"),
    ("llama2_7b", "llama-2-7B"),
    ("deepseek_v3", "deepseek-v3"),
    ("deepseek_v2_lite", "deepseek-v2-lite"),
    ("deepseek_v2", "deepseek-v2"),
    ("gpt3_175b", "gpt3-175B"),
    ("kimi_k2", "kimi-k2"),
    ("qwen3_235b_a22b", "qwen3-235B-A22B"),
    ("qwen3_30b_a3b", "qwen3-30B-A3B"),
    ("mixtral_8x7b", "mixtral-8x7B"),
    ("mixtral_8x22b", "mixtral-8x22B"),
    ("gpt_oss_120b", "gpt-oss-120B"),
    ("gpt_oss_20b", "gpt-oss-20B"),
    ("nemotron4_340b", "nemotron-4-340B"),
)
"""Beginnings of recipes' names, and the model of the library that they train."""
_NEMO_CONFIG: Final = "megatron_gpt_config"
"""The configuration that NeMo 1's program reads where none is named."""
_RUN: Final[Mapping[str, Any]] = {"train.train_iters": 50}
_TO_REPLACE: Final = (
    "train.train_iters, tokenizer and mock data of the recipe vanilla_gpt_pretrain_config: to be replaced by your own"
)
_ALSO_READ: Final = frozenset(
    {
        "model",
        "mixed_precision",
        "mixed_precision.grad_reduce_in_fp32",
        "ddp.grad_reduce_in_fp32",
        "comm_overlap",
        "comm_overlap.overlap_grad_reduce",
        "comm_overlap.overlap_param_gather",
        "model.cuda_graph_scope",
        "dist.use_megatron_fsdp",
        "model.activation_func",
        "model.should_pad_vocab",
        "dataset.seq_length",
        "dataset.sequence_length",
        "model.tp_comm_overlap",
        "comm_overlap.overlap_param_gather_with_optimizer_step",
        "--recipe",
        "--nodes",
        "--gpus_per_node",
        "model.fp8",
        "model.fp8_hybrid",
        "mixed_precision.bf16",
        "mixed_precision.fp16",
        "mixed_precision.fp8",
        "mixed_precision.fp8_recipe",
        "mixed_precision.fp4",
        "mixed_precision.fp4_recipe",
        "model.max_position_embeddings",
        "model.overlap_moe_expert_parallel_comm",
        "ddp.fsdp_double_buffer",
        "ddp.check_for_nan_in_grad",
        "ddp.bucket_size",
        "ddp.pad_buckets_for_high_nccl_busbw",
        "ddp.check_for_large_grads",
        "rerun_state_machine.check_for_nan_in_loss",
        "rerun_state_machine.check_for_nan_in_grad",
        "comm_overlap.tp_comm_bootstrap_backend",
        "comm_overlap.batch_p2p_comm",
        "comm_overlap.align_param_gather",
        "comm_overlap.bucket_size",
        "dist.enable_megatron_core_experimental",
        "dist.distributed_timeout_minutes",
    }
)


class MegatronBridge:
    """Megatron-Bridge, and NeMo before it."""

    name = "megatron-bridge"
    title = "Megatron-Bridge"
    aliases = ("bridge", "nemo", "megatron-bridge-nemo")
    version = "0.7.0 (dev), 2026-08-22"
    source = "NVIDIA-NeMo/Megatron-Bridge @ 067f987df03b8355b03192d88d70f1709fedf51a"
    terms = TERMS

    def write(self, order: LaunchOrder) -> Written:
        """Returns a Python program for torchrun. Raises `LaunchError` where the framework would refuse the execution.

        Args:
            order: what shall be written.
        """
        report = Report()
        groups = groups_of(order, report)
        keys = _configuration_keys(groups, order)
        reason = check_arguments(self._arguments(keys, Report()), order.nodes * order.gpus_per_node)
        if reason:
            raise LaunchError(f"Megatron-Bridge refuses this execution: {reason.replace('--', '')}.")
        lists = {
            which: tuple(map(_said_by_keys, report.listed(which)))
            for which in ("not_expressible", "not_modelled", "remarks")
        }
        if order.execution["weight_offload"]:
            lists["not_expressible"] = tuple(each for each in lists["not_expressible"] if "weight_offload" not in each)
            if not keys.get("model.cpu_offloading_weights"):
                lists["not_expressible"] += ("weight_offload: only with offloaded activations of whole layers",)
        lists["not_modelled"] = (*lists["not_modelled"], _TO_REPLACE)
        text = _program_text(self, order, keys, lists)
        return Written(
            self.name,
            self.title,
            self.version,
            (LaunchFile("pretrain_megatron_bridge.py", text, "python"),),
            keys,
            *lists.values(),
        )

    def find(self, text: str, name: str, recipe: str | None = None) -> FileContents | None:
        """Return the keys of a recipe: Python, a command that runs one, or YAML; None without any.

        Args:
            text: text of the file.
            name: file name.
            recipe: name of a function of a Python file; the first for pretraining if None.
        """
        ending = name.lower().rpartition(".")[2]
        if ending in ("yaml", "yml"):
            keys = from_yaml(text, name)
            return None if keys is None else _found_keys(keys, *_gpus_of(keys.values, keys.origins))
        if ending == "py" or (
            not text.startswith("#!/bin") and re.search(r"^(import|from) [a-z_.]+", text, re.MULTILINE)
        ):
            keys = from_python(text, name, recipe)
            if keys is None or not any(key in KEYS.values() for key in keys.values):
                return None
            if started := _TORCHRUN.search(text):
                line = text[: started.start()].count("\n") + 1
                return _found_keys(keys, int(started[1]) * int(started[2]), Origin("stated", "torchrun", name, line))
            return _found_keys(keys, *_gpus_of(keys.values, keys.origins))
        launch = launch_in(text, _MARKS, name)
        if launch is None or not any(word.text.startswith(_MARKS) for word in launch.words):
            return None
        words = CommandWords(launch.words)
        values = from_words(words)
        if (config := str(values.pop("--config-name", _NEMO_CONFIG))).removesuffix(".yaml") != _NEMO_CONFIG:
            values["--config-name"] = UnknownValue("--config-name")
            words.unread.append(f"--config-name {config[:100]}: that file is not at hand; what only it says is open.")
        values.pop("--config-path", None)
        told = sum(key in KEYS.values() for key in values)
        if not told and "--recipe" not in values:
            return None
        is_certain = told > 1 or "--recipe" in values or is_nemo(values)
        if "--recipe" in values:
            place = words.origins.get("--recipe", Origin("stated", "--recipe"))
            values[BASE] = UnknownValue(f"recipe {str(values['--recipe'])[:100]}", place.line, place.file)
        elif not is_nemo(dict.fromkeys(word.text.lstrip("+").partition("=")[0] for word in launch.words)):
            values[BASE] = UnknownValue("the program's own recipe", file=name)
        found = launch.found(values, words, is_certain=is_certain)
        if "--gpus_per_node" in values:  # the trainer of NeMo decides, whatever starts it on each node
            gpus, origin = _gpus_of(values, words.origins)
            origins = dict(found.origins) | ({"gpus": origin} if origin is not None else {})
            found = replace(found, gpus=gpus, origins=origins)
        return found

    def read_flags(self, flags: Mapping[str, Any], asked: LaunchInputs) -> LaunchReading:
        """Return the execution and model that keys describe; a key "--recipe" names the recipe that they belong to."""
        report = Report(self.title, asked)
        recipe = "" if isinstance(flags.get("--recipe"), UnknownValue) else str(flags.get("--recipe", ""))[:200]
        named = _GPUS.search(recipe)
        if asked.gpus is None and named is not None:
            gpus = int(named[1])
            asked = replace(asked, gpus=gpus, gpus_origin=Origin("stated", "--recipe"))
            report.asked = asked
            report.remark(f"The number of GPUs, {gpus}, is that of the recipe's name.")
        if isinstance(unknown := flags.get("--recipe"), UnknownValue):
            report.open_model(report.unknown("--recipe", unknown).origin)
        self._read_recipe(recipe, report)
        if isinstance(base := flags.get(BASE), UnknownValue):
            what = base.expression[:1].upper() + base.expression[1:]
            if asked.takes_defaults:
                report.remark(f"{what} is not at hand; where no key states a value, the framework's default counts.")
            else:
                report.remark(f"{what} is not at hand; what only it says is open.")
                report.elsewhere = Origin("unknown", base.expression, base.file, base.line)
        args = self._arguments(flags, report)
        read_model(args, report)
        if "layers" not in report.model.values_known:
            report.leave("the model's shape")
        read_execution(args, report)
        if (known := report.execution.known("num_procs")) and (reason := check_arguments(args, known)):
            report.refuse(reason)
        return report.reading(self.name, self.version, flags)

    @staticmethod
    def _read_recipe(recipe: str, report: Report) -> None:
        """The model that a recipe trains, without what only the library says of it."""
        for beginning, model in _RECIPES:
            if recipe.startswith(beginning):
                shape = shape_of(models.load(model))
                shape.pop("head_dim" if "kv_rank" in shape else "", None)
                report.start_model(shape, Origin("stated", "--recipe"))
                report.remark(f"The model is that of the recipe's name, {model}.")
                return

    @staticmethod
    def _arguments(flags: Mapping[str, Any], report: Report) -> Arguments:
        """The arguments of Megatron-Core that keys come to."""
        said: dict[str, Any] = {}
        names = dict(KEYS)
        hidden: dict[str, UnknownValue] = {}
        for key, value in flags.items():
            if is_hidden(key, value):
                report.remark(f"{value} is not at hand; it may hold keys.")
                hidden = dict.fromkeys(hidden_areas(value.expression), value) | hidden
            elif key in _ARGUMENTS:
                said[_ARGUMENTS[key]] = None if str(value).lower() in ("none", "null") else value
                if value is not None:
                    name_effects({_ARGUMENTS[key]: value}, KEYS, report)
            elif key not in _ALSO_READ and key != BASE:
                _name_effect(key, value, report)
        _read_overlaps(said, flags, names)
        _read_precisions(said, flags, names)
        for key in ("dataset.seq_length", "dataset.sequence_length"):
            if key in flags and said.get("seq_length") is None:
                said["seq_length"], names["seq_length"] = flags[key], key
        _read_tied_embeddings(
            said, flags, names, "share_embeddings_and_output_weights", "untie_embeddings_and_output_weights"
        )
        impl, scope = str(said.get("cuda_graph_impl") or "none").lower(), str(flags.get("model.cuda_graph_scope") or "")
        if impl == "local" and "full_iteration" in scope.lower():
            said["cuda_graph_impl"] = "full_iteration"
        if _is_off(said.get("cpu_offloading"), "model.cpu_offloading"):
            said["cpu_offloading_num_layers"] = 0
        for key in ("cpu_offloading_weights", "cpu_offloading_activations", "cpu_offloading"):
            if said.get(key) is not None and not isinstance(said[key], UnknownValue):
                said[key] = parse_flag(said[key], key)
        for key, name in (
            ("dist.use_megatron_fsdp", "use_megatron_fsdp"),
            ("comm_overlap.overlap_param_gather_with_optimizer_step", "overlap_param_gather_with_optimizer_step"),
        ):
            if isinstance(flags.get(key), UnknownValue) or parse_flag(flags.get(key), key):
                said[name], names[name] = flags.get(key) or True, key
        return Arguments(
            said,
            BRIDGE,
            {**names, "fp8_recipe": "mixed_precision fp8 recipe", "fp4_recipe": "mixed_precision fp4 recipe"},
            report,
            hidden,
        )


def _read_tied_embeddings(
    said: dict[str, Any], flags: Mapping[str, Any], names: dict[str, str], shared: str, untied: str
) -> None:
    """Tied embeddings, which Megatron-Core's argument says the other way round."""
    value = said.pop(shared, None)
    if value is not None:
        said[untied] = value if isinstance(value, UnknownValue) else not parse_flag(value, shared)
        names[untied] = KEYS[shared]


def _is_off(value: Any, name: str) -> bool:
    return value is not None and not isinstance(value, UnknownValue) and not parse_flag(value, name)


def _found_keys(keys: RecipeKeys, gpus: int | None, origin: Origin | None) -> FileContents:
    origins = keys.origins | ({"gpus": origin} if origin is not None else {})
    return FileContents(keys.values, gpus, {}, tuple(keys.unread), tuple(keys.remarks), origins, recipes=keys.recipes)


def _name_effect(key: str, value: Any, report: Report) -> None:
    """Names a key that nothing here depends on: without effect, not modelled, or not known."""
    field = key.removeprefix("model.")
    is_field = key.startswith("model.") and field in _MODEL_FIELDS_WITHOUT_BEARING
    if is_field or key.startswith(_TABLES_WITHOUT_BEARING):
        report.without_effect(key)
    elif key.startswith(("model.", "ddp.")) and field.removeprefix("ddp.") in flags_of():
        name_effects({field.removeprefix("ddp."): value}, {field.removeprefix("ddp."): key}, report)
    elif key.startswith(_WITHOUT_BEARING):
        report.without_effect(key)
    elif key not in ("--nodes", "--gpus_per_node"):
        report.unread(f"{key[:80]} is not read.")


def _gpus_of(keys: Mapping[str, Any], origins: Mapping[str, Origin]) -> tuple[int | None, Origin | None]:
    """Return the GPUs of a NeMo trainer, nodes times devices of each, and their origin."""
    nodes, each = keys.get("--nodes", 1), keys.get("--gpus_per_node")
    for value in (nodes, each):
        if isinstance(value, UnknownValue):
            return None, Origin("unknown", value.expression, value.file, value.line)
    known = [str(value).isdecimal() and 0 < int(str(value)[:8]) < 10**7 for value in (nodes, each)]
    if not all(known):
        return None, None
    return int(nodes) * int(str(each)), origins.get("--gpus_per_node") or Origin("stated", "trainer.devices")


_TABLES_WITHOUT_BEARING: Final = (
    "model.data.",
    "model.tokenizer.",
    "model.optim.",
    "model.nsys_profile.",
    "exp_manager.",
    "trainer.",
    "optim.",
    "run.",
    "hydra.",
    "defaults",
    "name",
    "restore_from_path",
    "cluster.",
    "logging.",
    "log.",
    "resume.",
    "data.",
    "peft.",
    "mode",
    "model.data_",
)
_WITHOUT_BEARING: Final = (
    "train.",
    "dataset.",
    "tokenizer.",
    "logger.",
    "scheduler.",
    "checkpoint.",
    "rng.",
    "validation.",
    "profiling.",
    "optimizer.",
    "--",
    "env_vars",
)
_MODEL_FIELDS_WITHOUT_BEARING: Final = frozenset(
    {
        "cross_entropy_loss_fusion",
        "cross_entropy_fusion_impl",
        "pipeline_dtype",
        "use_te_rng_tracker",
        "moe_permute_fusion",
        "moe_router_fusion",
        "moe_router_force_load_balancing",
        "cuda_graph_warmup_steps",
        "deterministic_mode",
        "bf16",
        "params_dtype",
        "init_method_std",
        "layernorm_epsilon",
        "rope_scaling",
        "apply_rope_fusion",
        "tp_comm_overlap_cfg",
        "make_vocab_size_divisible_by",
        "fp8_output_proj",
        "moe_router_padding_for_fp8",
        "qk_clip",
        "moe_hybridep_num_sms",
        "bias_dropout_add_fusion",
        "max_position_embeddings",
        "moe_router_score_function",
        "moe_router_group_topk",
        "moe_router_num_groups",
        "moe_router_topk_scaling_factor",
        "moe_router_enable_expert_bias",
        "moe_router_dtype",
        "mcore_gpt",
        "megatron_amp_O2",
        "transformer_engine",
        "rotary_percentage",
        "pre_process",
        "post_process",
        "persist_layer_norm",
        "bias_activation_fusion",
        "use_cpu_initialization",
        "precision",
        "do_layer_norm_weight_decay",
        "headscale",
        "transformer_block_type",
        "openai_gelu",
        "normalize_attention_scores",
        "hysteresis",
        "native_amp_init_scale",
        "native_amp_growth_interval",
        "onnx_safe",
        "apex_transformer_log_level",
        "gradient_as_bucket_view",
        "sync_batch_comm",
        "seed",
        "resume_from_checkpoint",
        "use_scaled_init_method",
        "apply_query_key_layer_scaling",
        "kv_channels",
        "name",
        "gc_interval",
        "seq_len_interpolation_factor",
        "fp32_residual_connection",
        "attention_dropout",
        "hidden_dropout",
        "ffn_dropout",
        "reset_position_ids",
        "reset_attention_mask",
        "eod_mask_loss",
        "wandb_logger",
        "apply_layernorm_1p",
        "moe_router_pre_softmax",
        "calculate_per_token_loss",
        "init_model_with_meta_device",
        "perform_initialization",
    }
)


def _read_overlaps(said: dict[str, Any], flags: Mapping[str, Any], names: dict[str, str]) -> None:
    """Overlap of gradients: a `comm_overlap` object decides, and where it says nothing it is on with several replicas
    and the distributed optimizer."""
    for name in ("tp_comm_overlap", "overlap_moe_expert_parallel_comm"):
        other = flags.get(f"model.{name}")
        if said.get(name) is None and other is not None:
            said[name], names[name] = other, f"model.{name}"
    for name in ("overlap_grad_reduce", "overlap_param_gather"):
        decided = flags.get(f"comm_overlap.{name}")
        if decided is not None:
            said[name], names[name] = decided, f"comm_overlap.{name}"
    if said.get("overlap_param_gather") is None and said.get("overlap_grad_reduce") is not None:
        # The common recipe has both on; one that turns off the first has the second off, too.
        said["overlap_param_gather"] = said["overlap_grad_reduce"]


def _read_precisions(said: dict[str, Any], flags: Mapping[str, Any], names: dict[str, str]) -> None:
    """Read datatypes from a recipe of mixed precision, and from keys next to its name."""
    given = flags.get("mixed_precision")
    own = {
        name: flags[key]
        for name in ("bf16", "fp16", "fp8", "fp8_recipe", "fp4", "fp4_recipe")
        if (key := f"mixed_precision.{name}") in flags
    }
    for name in ("bf16", "fp16", "fp8", "fp4"):
        names[name] = "mixed_precision"
    text = "" if isinstance(given, UnknownValue) else str(given or "").lower().replace("-", "_")
    name = next((each for each in sorted(PRECISIONS, key=len, reverse=True) if each in text), "")
    if text == "fp32":
        said["fp32_precision"], names["fp32_precision"] = True, "mixed_precision"
    elif name:
        said.update(PRECISIONS[name])
    elif (text and text not in ("none", "mixedprecisionconfig")) or isinstance(given, UnknownValue):
        said["bf16"] = given if isinstance(given, UnknownValue) else UnknownValue(str(given)[:80])
    if "bf16_with_fp8_mxfp8" in text:
        said.update(PRECISIONS["bf16_with_mxfp8_mixed"])
    if "bf16_with_fp4_nvfp4" in text:
        said.update(PRECISIONS["bf16_with_nvfp4_mixed"])
    said |= {name: value for name, value in own.items() if str(value).lower() not in ("none", "null")}
    if flags.get("model.fp8") not in (None, False) and "fp8" not in said:  # NeMo 1: with Transformer Engine
        said["fp8"] = flags["model.fp8"] if isinstance(flags["model.fp8"], UnknownValue) else "hybrid"
        names["fp8"] = "model.fp8"
    wide: Any = flags.get("mixed_precision.grad_reduce_in_fp32")
    key = "mixed_precision.grad_reduce_in_fp32"
    if wide is None and (found := re.search(r"grad_reduce_in_fp32\s*=\s*(true|false)", text)):
        wide, key = found[1], "mixed_precision"
    if wide is None and isinstance(said.get("bf16"), UnknownValue):
        wide, key = said["bf16"], "mixed_precision"
    if wide is None and not text:
        wide, key = flags.get("ddp.grad_reduce_in_fp32"), "ddp.grad_reduce_in_fp32"
    if wide is not None:
        names |= {"grad_reduce_in_bf16": key, "accumulate_allreduce_grads_in_fp32": key}
        known = wide if isinstance(wide, UnknownValue) else parse_flag(wide, "grad_reduce_in_fp32")
        said["grad_reduce_in_bf16"] = known if isinstance(known, UnknownValue) else not known
        said["accumulate_allreduce_grads_in_fp32"] = known


def _configuration_keys(groups: Groups, order: LaunchOrder) -> dict[str, Any]:
    """Keys of the configuration from arguments of Megatron-Core."""
    a = {name: value for group in groups.values() for name, value in group.items()}
    keys: dict[str, Any] = {}
    gated = a.pop("swiglu")
    a["gated_linear_unit"] = gated
    a["share_embeddings_and_output_weights"] = not a.pop("untie_embeddings_and_output_weights")
    a["virtual_pipeline_model_parallel_size"] = a.pop("num_virtual_stages_per_pipeline_rank", None)
    if not a.pop("group_query_attention", False):
        a["num_query_groups"] = a["num_attention_heads"]
    for name in ("recompute_granularity", "recompute_method", "recompute_num_layers"):
        a.setdefault(name, None)
    if a.get("cpu_offloading_num_layers"):
        weights = bool(order.execution["weight_offload"])
        a |= {"cpu_offloading": True, "cpu_offloading_activations": True, "cpu_offloading_weights": weights}
    if a["attention_backend"] == "auto":
        del a["attention_backend"]
    if a.pop("check_for_nan_in_loss_and_grad", True) is False:
        keys["ddp.check_for_nan_in_grad"] = False
        keys["rerun_state_machine.check_for_nan_in_loss"] = False
    for name in ("cp_comm_type",):
        if name in a:
            a[name] = a[name][0]
    if "moe_aux_loss_coeff" in a:
        a["moe_aux_loss_coeff"] = a["moe_aux_loss_coeff"][0]
        a["moe_router_load_balancing_type"] = a["moe_router_load_balancing_type"][0]
    if str(a.get("moe_layer_freq", "")).startswith("("):
        a["moe_layer_freq"] = order.shape["moe_layer_freq"]
    if not a.get("overlap_moe_expert_parallel_comm") and "num_experts" in a:
        a["overlap_moe_expert_parallel_comm"] = False
    for name, key in KEYS.items():
        if name in a:
            keys[key] = a[name]
    keys["dataset.seq_length"] = a["seq_length"]
    keys["mixed_precision"] = _precision_name(a)
    keys["mixed_precision.grad_reduce_in_fp32"] = not a.get("grad_reduce_in_bf16", False) and (
        a.get("accumulate_allreduce_grads_in_fp32", False)
    )
    keys["ddp.grad_reduce_in_fp32"] = keys["mixed_precision.grad_reduce_in_fp32"]
    for name in ("overlap_grad_reduce", "overlap_param_gather"):
        keys[f"comm_overlap.{name}"] = a[name]
    return {**keys, **_RUN}


def _precision_name(a: Mapping[str, Any]) -> str:
    wanted = {name: a[name] for name in ("bf16", "fp16", "fp8", "fp8_recipe", "fp4", "fp4_recipe") if a.get(name)}
    for name, precision in PRECISIONS.items():
        if precision == wanted:
            return name
    raise LaunchError("Megatron-Bridge trains in bfloat16, float16, float8 or float4.")


def _said_by_keys(sentence: str) -> str:
    """A remark about flags, with the keys of this framework."""
    from engine.launch.megatron.parser import flags_by_name

    def key(found: re.Match[str]) -> str:
        flag = flags_by_name().get(found[0])
        return KEYS.get(flag.destination, found[0]) if flag is not None else found[0]

    return re.sub(r"--[a-z0-9-]+", key, sentence)


_DTYPES: Final = {"bf16": "torch.bfloat16", "fp32": "torch.float32"}
_FUNCTIONS: Final = {True: "torch.nn.functional.silu", False: "torch.nn.functional.gelu"}


def _program_text(
    framework: MegatronBridge, order: LaunchOrder, keys: Mapping[str, Any], lists: Mapping[str, Any]
) -> str:
    """The program: a bare recipe, every key assigned, and the call that trains."""
    headings = dict(zip(lists, ("Not expressible there", "Set there, not modelled", "Remarks"), strict=True))
    told = script_header(
        f"{framework.title} ({framework.version})",
        order,
        {headings[which]: sentences for which, sentences in lists.items()},
    )
    latent = "model.multi_latent_attention" in keys
    precision = keys["mixed_precision"]
    lines = [
        told,
        "#",
        "# On every node:",
        f"#   {torchrun_command(order)} pretrain_megatron_bridge.py",
        "",
        "import os",
        "",
        "import torch",
        *(["from megatron.bridge.models.mla_provider import MLAModelProvider"] if latent else []),
        "from megatron.bridge.recipes.gpt.vanilla_gpt import vanilla_gpt_pretrain_config",
        "from megatron.bridge.training.comm_overlap import CommOverlapConfig",
        "from megatron.bridge.training.gpt_step import forward_step",
        f"from megatron.bridge.training.mixed_precision import {precision}",
        "from megatron.bridge.training.pretrain import pretrain",
        "from megatron.core.transformer.enums import AttnBackend",
        "",
        *(f'os.environ.setdefault("{name}", "{value}")' for name, value in environment_of(order).items()),
        "",
        "cfg = vanilla_gpt_pretrain_config()",
        *(["cfg.model = MLAModelProvider()"] if latent else []),
        f"cfg.mixed_precision = {precision}()",
        f"cfg.comm_overlap = CommOverlapConfig(tp_comm_overlap={keys['comm_overlap.tp_comm_overlap']})",
        f"cfg.model.activation_func = {_FUNCTIONS[bool(keys['model.gated_linear_unit'])]}",
        f"cfg.tokenizer.vocab_size = {keys['model.vocab_size']}",
    ]
    for key, value in keys.items():
        if key in ("mixed_precision", "comm_overlap.tp_comm_overlap"):
            continue
        shown = repr(value)
        if key == "model.attention_backend":
            shown = f"AttnBackend.{value}"
        elif key.endswith("_dtype") and key.startswith("optimizer."):
            shown = _DTYPES[value]
        elif isinstance(value, list) and len(value) > 12 and set(value) <= {0, 1}:
            first = value.index(1)
            if all(value[first:]):
                shown = f"[0] * {first} + [1] * {len(value) - first}"
        lines.append(f"cfg.{key} = {shown}")
    lines += ["", 'if __name__ == "__main__":', "    pretrain(config=cfg, forward_step_func=forward_step)"]
    return "\n".join(lines) + "\n"


MEGATRON_BRIDGE: Final = MegatronBridge()
"""The framework."""
