"""Differences between scenarios, field by field, in words: the numbers that results depend on, not the prose."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final

import hardware
from dashboard.words.numbers import ABSENT, plain
from dashboard.words.scenarios import system_name
from engine import Scenario
from engine.columns import by_name, choice_label
from engine.cost_models.registry import cost_model_of
from engine.scenarios.differences import scenario_fields

__all__ = ["ABSENT", "differences"]

_RUN: Final = {
    "model": "Model",
    "system": "System",
    "num_procs": "GPUs",
    "max_batch_size": "Batch, at most",
    "datatype": "Datatype",
    "cost_model": "Cost model",
    "calibration": "Calibration",
    "executions": "Executions",
}
_MODEL: Final = {
    "hidden": "Hidden size",
    "feedforward": "Feedforward width",
    "seq_size": "Sequence length, tokens",
    "attn_heads": "Attention heads",
    "attn_size": "Head size",
    "num_blocks": "Blocks",
}
_ARCHITECTURE: Final = {
    "hidden": "Hidden size",
    "ffn": "Feedforward width",
    "layers": "Blocks",
    "heads": "Attention heads",
    "kv_heads": "Key-value heads",
    "head_dim": "Head size",
    "vocab": "Vocabulary",
    "vocab_padded": "Padded vocabulary",
    "gated_mlp": "Gated feedforward",
    "norm": "Normalisation",
    "tied_embeddings": "Embeddings tied",
    "experts.routed": "Experts",
    "experts.top_k": "Experts of a token",
    "experts.ffn": "Width of an expert",
    "experts.shared": "Shared experts",
    "experts.leading_dense_layers": "Leading blocks without experts",
    "experts.groups": "Groups of experts",
    "experts.groups_per_token": "Groups of a token",
    "prediction_layers": "Prediction layers",
    "trained_prediction_layers": "Prediction layers trained",
    "qk_norm": "Norm of queries and keys",
    "qkv_bias": "Biases of queries, keys and values",
}
_ENGINE: Final = re.compile(r"(matrix|vector)\.([^.]+)\.(tflops|gflops_efficiency)")
_NETWORK: Final = re.compile(r"networks\.(\d+)\.(\w+)(?:\.(.+))?")
_NETWORK_WORDS: Final = {
    "bandwidth_gb_per_s": "bandwidth, GB/s",
    "efficiency": "efficiency",
    "size": "size, GPUs",
    "latency_s": "latency, µs",
    "must_be_filled": "must be filled",
    "processor_usage": "share of compute used",
    "operations": "traffic of",
}
_MEMORY: Final = {
    "mem1.capacity_gib": "HBM capacity, GiB",
    "mem1.bandwidth_gb_per_s": "HBM bandwidth, GB/s",
    "mem1.mb_efficiency": "HBM efficiency by size",
    "mem2.capacity_gib": "Host memory, GiB",
    "mem2.bandwidth_gb_per_s": "Host bandwidth, GB/s",
    "mem2.mb_efficiency": "Host efficiency by size",
    "processing_mode": "Compute and memory overlap",
    "accelerator.tdp_w": "Design power, W",
}


def differences(scenarios: Sequence[Scenario]) -> list[tuple[str, str, list[str]]]:
    """Returns (group, field, value in each scenario) of every field that is not the same in all, the most telling
    first."""
    exact = all(cost_model_of(scenario).flop_recipe == "block" for scenario in scenarios)
    networks = _network_labels(scenarios)
    tables = [dict(_labelled_fields(scenario, exact, networks)) for scenario in scenarios]
    names = list(dict.fromkeys(name for table in tables for name in table))
    order = {group: index for index, group in enumerate(("Run", "Model", "System", "Limits"))}
    found = []
    for name in names:
        values = [table.get(name, ABSENT) for table in tables]
        if len(set(values)) > 1:
            found.append((name[0], name[1], values))
    return sorted(found, key=lambda row: order[row[0]])


def _network_labels(scenarios: Sequence[Scenario]) -> list[str]:
    """Return the names of the networks, innermost first; all names if systems name theirs differently."""
    names = (hardware.network_names(scenario.system) for scenario in scenarios)
    return [_first_large(" / ".join(dict.fromkeys(filter(None, tier)))) for tier in zip_longest(*names)]


def _first_large(words: str) -> str:
    return words[:1].upper() + words[1:]


_OPTIONS: Final = {
    "uneven_pipelines": "Uneven pipelines",
    "memory_excess": "Memory above capacity [%]",
    "framework": "Framework",
}
"""Labels of limits that are no field."""


def _labelled_fields(scenario: Scenario, exact: bool, networks: Sequence[str]) -> Iterator[tuple[tuple[str, str], str]]:
    """((group, field), value) of everything that results depend on. exact: whether all compared know a model
    by the six numbers of its block alone. networks: what the networks are called."""
    for path, value in scenario_fields(scenario, is_block_enough=exact):
        part, _, rest = path.partition(".")
        if path in _RUN:
            yield ("Run", _RUN[path]), _run_words(scenario, path, value)
        elif part == "model":
            key = rest.removeprefix("block.").removeprefix("architecture.").removeprefix("layers.")
            words = _ARCHITECTURE if rest.startswith("architecture.") else _MODEL
            label = words.get(key, key if rest.startswith("block.") else _path_label(key))
            yield ("Model", label), _value_words(value)
        elif part == "limits":
            label = _OPTIONS[rest] if rest in _OPTIONS else by_name(rest).label
            yield ("Limits", label), _told_limit(rest, value, scenario.system)
        else:
            label = _system_label(rest, networks)
            yield ("System", label), _value_words(value * 1e6 if path.endswith("latency_s") else value)


def _run_words(scenario: Scenario, path: str, value: Any) -> str:
    """Return a field of the run in words."""
    if path == "model":
        return scenario.model.title or scenario.model.name
    if path == "system":
        return system_name(scenario.system)
    if path == "datatype":
        return choice_label("datatype", value)
    if path == "cost_model":
        return str(value).capitalize()
    return str(value) if path == "calibration" else f"{value:,}"


def _path_label(path: str) -> str:
    """A path into a document as a label: "latent_attention.kv_rank" becomes "Latent attention, kv rank"."""
    return path.replace("_", " ").replace(".", ", ").capitalize()


def _system_label(path: str, networks: Sequence[str]) -> str:
    """Return the label of a field of the system."""
    if path in _MEMORY:
        return _MEMORY[path]
    engine = _ENGINE.fullmatch(path)
    if engine is not None:
        what = "peak, TFLOP/s" if engine.group(3) == "tflops" else "efficiency by size"
        return f"{engine.group(1).capitalize()} {what}"
    network = _NETWORK.fullmatch(path)
    if network is not None:
        more = f" {network.group(3)}" if network.group(3) else ""
        return f"{networks[int(network.group(1))]} {_NETWORK_WORDS.get(network.group(2), network.group(2))}{more}"
    return path


def _value_words(value: Any) -> str:
    if value is None:
        return "0"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return plain(float(f"{value:.12g}"))
    if isinstance(value, list):
        return " · ".join(f"{plain(share)} from {plain(size)}" for size, share in value)
    return str(value).replace("_", " ")


def _told_limit(name: str, limit: Any, system: hardware.System) -> str:
    if isinstance(limit, Mapping):
        return f"{limit['min']:,} to {limit['max']:,}"
    values = limit if isinstance(limit, list) else [limit]
    if name not in _OPTIONS and by_name(name).of_network:
        return ", ".join(choice_label(name, value, hardware.network_names(system)) for value in values)
    return ", ".join(_value_words(value) for value in values)
