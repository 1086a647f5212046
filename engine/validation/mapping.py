"""From a row of measured runs to the arrays that the calibrated cost model reads.

What a row leaves open is taken by the rules below and listed as assumptions of that row; what the model does not
cover, or what cannot be, makes the row unsupported with a reason. Nothing here reads a measurement.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

import hardware
from engine.columns import by_name
from engine.columns.recompute_modules import MODULES, module_bits
from engine.columns.stage_layouts import BALANCED, EVEN, StageLayoutError, layout_of_word
from engine.cost_models.calibrated import (
    RECOMPUTES,
    SCHEDULES,
    Accelerators,
    Case,
    accelerator_of,
    calibrated,
    generation_of,
    interleaved_where,
    plain_schedule,
)
from engine.executions.layer_splits import LayerSplitError, split_of
from engine.validation.checks import Findings, refuse_impossible
from engine.validation.reading import Runs
from engine.validation.sites import describe_sites
from engine.validation.software import infer_software
from engine.validation.texts import Texts
from engine.validation.words import RecomputePolicy, accelerator_named, bits_of, recompute_of

__all__ = ["REASONS", "Mapped", "map_runs"]

GIGA = 1e9
"""Bytes per second of a GB/s, and bytes of a GB."""
NETWORKS = ("network_sizes", "network_bandwidths")
"""Fields of an accelerator that have a value for each tier."""

REASONS: dict[str, str] = {
    "": "Predicted.",
    "bad_value": "A field cannot be read or is out of range.",
    "missing_field": "A field that the prediction needs is not given.",
    "impossible_product": "The degrees of parallelism do not multiply to the number of processors.",
    "impossible_split": "A size cannot be split by its degree of parallelism.",
    "implausible_measurement": "The measured time would need more than the peak, or next to nothing of it.",
    "unknown_hardware": "The accelerator is not in the library.",
    "hardware_not_calibrated": "No kernel rates were measured for this accelerator's generation.",
    "not_a_transformer": "The model has layers other than attention and feed-forward.",
    "unknown_precision": "The precision is none that the cost model covers.",
    "unknown_recompute": "The recomputation policy is none that the cost model covers.",
    "schedule_not_modelled": "The pipeline schedule is none that the cost model covers.",
    "offload_not_modelled": "Something is offloaded to the host in a way that the model does not cover.",
}
"""Every code a row can have as `reason`, with its meaning."""

NEEDED = ("hidden", "ffn", "layers", "heads", "vocab", "seq_len", "tp", "pp", "mbs", "gbs")
LATENT = {"q_lora": 1536.0, "kv_lora": 512.0, "nope": 128.0, "rope": 64.0, "v": 128.0}
"""Ranks and widths of multi-head latent attention where a row does not print them: DeepSeek-V2 and V3."""
PACKED_TOKENS = 256.0
"""Length of an example in packed fine-tuning data: attention ends at its borders [tokens]. Source: stated by us."""


@dataclass(slots=True)
class Mapped:
    """Runs as the cost model reads them; arrays and lists are [rows].

    `case` holds placeholders in rows that are not supported. `reason` is a key of `REASONS`, `reason_text` a sentence;
    `assumptions` says what the row left open; `software_rule` which rule set the software facts.
    """

    table: pd.DataFrame
    case: Case
    reason: npt.NDArray[np.object_]
    reason_text: npt.NDArray[np.object_]
    assumptions: npt.NDArray[np.object_]
    software_rule: npt.NDArray[np.object_]

    @property
    def supported(self) -> npt.NDArray[np.bool_]:
        """Mask of the rows that can be predicted [rows]."""
        return np.asarray(self.reason == "", bool)


def map_runs(runs: Runs, systems: Mapping[str, hardware.System] | None = None) -> Mapped:
    """Maps every row; never raises for what a cell holds.

    Args:
        runs: as they were read [rows].
        systems: what further words of the field `hardware` stand for, of any generation; the library's otherwise.
    """
    table = runs.table
    size = len(table)
    found = Findings(size)
    found.refuse(
        np.array([bool(fault) for fault in runs.faults], bool), "bad_value", [f"{fault}." for fault in runs.faults]
    )
    notes = Texts(table["notes"])
    _refuse_families(Texts(table["family"]), notes, found)
    columns = {
        name: table[name].to_numpy(np.float64).copy() for name in table.columns if table[name].dtype == np.float64
    }
    lacking = np.isnan([columns[name] for name in NEEDED]).T
    missing = np.asarray(lacking.any(axis=1))
    lacked = {row: ", ".join(compress(NEEDED, lacking[row])) for row in np.flatnonzero(missing).tolist()}
    found.refuse(missing, "missing_field", [f"Not given: {lacked.get(row)}." for row in range(size)])
    values, generation = _map_hardware(table, found, systems or {})
    values |= _map_model(table, notes, columns, found)
    values |= _map_layout(table, notes, columns, found)
    software, rules, faults = infer_software(table, generation)
    found.refuse(np.array([bool(fault) for fault in faults], bool), "bad_value", [f"{fault}." for fault in faults])
    values |= software
    refuse_impossible(columns, values, found)
    supported = found.reason == ""
    # Unsupported rows get harmless numbers, so that one array computation covers the table.
    unfinished = [
        name
        for name, value in values.items()
        if name not in ("power", "clock", "age_years") and not np.isfinite(value[supported]).all()
    ]
    assert not unfinished, unfinished
    safe = {
        name: np.where(supported | np.isfinite(value), np.where(supported, value, 1.0), 1.0)
        for name, value in values.items()
    }
    for name in (
        "generation",
        "recompute",
        "recompute_modules",
        "attention_kernel",
        "launch",
        "unfused_elementwise",
        "experts",
        "latent",
        "schedule",
        "stage_layout",
        "leading_dense",
        "prediction_layers",
    ):
        safe[name] = np.where(supported, safe[name], 0.0)
    assumptions = np.array(["; ".join(parts) for parts in found.assumed], object)
    tiered: dict[str, Any] = {
        field: tuple(values for name, values in safe.items() if name.startswith(field)) for field in NETWORKS
    }
    return Mapped(table, Case.of({**safe, **tiered}), found.reason, found.text, assumptions, rules)


def _refuse_families(family: Texts, notes: Texts, found: Findings) -> None:
    hybrid = family.saying("mamba|hybrid") | notes.saying("Hybrid Mamba|linear.attention")
    found.refuse(hybrid, "not_a_transformer", "Hybrid models with state-space layers are not covered.")
    found.refuse(family.saying("zerobubble"), "schedule_not_modelled", "Zero-bubble schedules are not covered.")
    offloading = family.each((text.lower() == "dense_zero_offload" for text in family.different), np.bool_)
    found.refuse(
        offloading | notes.saying("(?-i:(?:optimizer|param) offload=True)"),
        "offload_not_modelled",
        "DeepSpeed's offload of optimizer or weights to the host is not covered.",
    )
    found.refuse(
        notes.saying(r"\boffloading of \d+ layers"),
        "offload_not_modelled",
        "The recipe offloads activations and weights of some layers to the host; an execution does so for all or none.",
    )


def _map_hardware(
    table: pd.DataFrame, found: Findings, known: Mapping[str, hardware.System]
) -> tuple[dict[str, npt.NDArray[np.float64]], npt.NDArray[np.object_]]:
    names = [str(name) for name in table["hardware"]]
    taken = {name: (known[name], "") if name in known else accelerator_named(name) for name in set(names)}
    systems = {name: each[0] if each else None for name, each in taken.items()}
    for row, name in enumerate(names):
        if (each := taken[name]) and each[1]:
            found.assumed[row].append(each[1])
    facts = {name: accelerator_of(system) for name, system in systems.items() if system is not None}
    plain = [field.name for field in fields(Accelerators) if field.name not in (*NETWORKS, "scaled_peaks")]
    values = {
        field: np.array([facts[name][field] if name in facts else np.nan for name in names], np.float64)
        for field in plain
    }
    values |= _map_networks(table, names, systems)
    generation = np.array([generation_of(system) if (system := systems[name]) else "" for name in names], object)
    given = np.array([bool(name) for name in names], bool)
    found.refuse(~given, "missing_field", "Not given: hardware.")
    found.refuse(
        np.array([systems[name] is None for name in names], bool),
        "unknown_hardware",
        [f"{name[:60]!r} is not an accelerator of the library." for name in names],
    )
    found.refuse(
        np.array(
            [(system := systems[name]) is not None and name not in known and not calibrated(system) for name in names],
            bool,
        ),
        "hardware_not_calibrated",
        [f"No kernel rates were measured for {name[:60]}." for name in names],
    )
    return values, generation


def _map_networks(
    table: pd.DataFrame, names: Sequence[str], systems: Mapping[str, hardware.System | None]
) -> dict[str, npt.NDArray[np.float64]]:
    """The networks of every row, tier by tier under names of their own; not a number without a system.

    Fewer networks than another row has are as if the outermost were there more than once.
    """
    known = {name: system for name, system in systems.items() if system is not None}
    most = max((system.tiers for system in known.values()), default=1)
    sizes, bandwidths = np.full((2, most + 1, len(names)), np.nan)
    links = np.full(len(names), np.nan)
    for name, system in known.items():
        rows = np.array([each == name for each in names], bool)
        facts, missing = accelerator_of(system), most - system.tiers
        (inner, *outer), (fast, *slow) = (facts[field] for field in NETWORKS)
        last = facts["network_bandwidths"][-1]
        # Between them is room for hosts of several domains, which only a row can state.
        sizes[:, rows] = np.array([[inner, inner, *outer, *(outer or [inner])[-1:] * missing]]).T
        bandwidths[:, rows] = np.array([[fast, last, *slow, *[last] * missing]]).T
        # Without a link to the host, what leaves the domain goes through the network.
        links[rows] = GIGA * system.mem2.bandwidth_gb_per_s or last
    describe_sites(table, sizes, bandwidths, links)
    tiers = dict(zip(NETWORKS, (sizes, bandwidths), strict=True))
    return {f"{field} {tier}": values for field, found in tiers.items() for tier, values in enumerate(found)}


def _map_model(
    table: pd.DataFrame, notes: Texts, columns: dict[str, npt.NDArray[np.float64]], found: Findings
) -> dict[str, npt.NDArray[np.float64]]:
    fill = found.fill
    attn = [str(text).lower() for text in table["attn"]]
    latent = np.array([bool(re.search(r"\bmla\b|\blatent", text)) for text in attn], np.float64)
    parts = {
        key: np.array([float(m[1]) if (m := re.search(rf"\b{key}(\d+)", text)) else usual for text in attn], np.float64)
        for key, usual in LATENT.items()
    }
    heads = columns["heads"]
    head = fill(columns["head_dim"], columns["hidden"] / heads, "")
    mla = latent > 0
    windows = [re.search(r"(?:sliding[- _]?window|swa)[ =:]*(\d+)", text) for text in attn]
    window = np.array([float(match[1]) if match else 0.0 for match in windows], np.float64)
    alternating = np.array(["alternating" in text for text in attn], bool)
    packed = notes.saying("packed")
    experts = fill(columns["moe_experts"], 0.0, "")
    return {
        "hidden": columns["hidden"],
        "feedforward": columns["ffn"],
        "num_blocks": columns["layers"],
        "attn_heads": heads,
        "key_value_heads": np.where(mla, heads, fill(columns["kv_heads"], heads, "")),
        "attn_size": np.where(mla, parts["nope"] + parts["rope"], head),
        "value_size": np.where(mla, parts["v"], head),
        "vocabulary": columns["vocab"],
        "seq_size": columns["seq_len"],
        "gated": fill(columns["gated_mlp"], 0.0, "gated_mlp False"),
        "tied_embeddings": fill(columns["tied_embeddings"], 0.0, "tied_embeddings False"),
        "latent": latent,
        "query_rank": np.where(mla, parts["q_lora"], 0.0),
        "key_value_rank": np.where(mla, parts["kv_lora"], 0.0),
        "rope_size": np.where(mla, parts["rope"], 0.0),
        "window": np.where(packed, PACKED_TOKENS, window),
        "window_chunked": np.where(packed, 1.0, 0.0),
        "full_attention_every": np.where(alternating & ~packed, 2.0, 0.0),
        "experts": experts,
        "experts_per_token": np.maximum(fill(columns["moe_topk"], np.where(experts > 0, np.nan, 1.0), ""), 1.0),
        "expert_feedforward": fill(columns["moe_ffn"], 0.0, ""),
        "shared_experts": fill(columns["moe_shared"], 0.0, "moe_shared 0", experts > 0),
        "leading_dense": np.where(
            experts > 0, fill(columns["moe_dense_layers"], 0.0, "moe_dense_layers 0", experts > 0), 0.0
        ),
        "experts_every": np.where(experts > 0, 1.0, 0.0),
        "expert_groups": fill(columns["moe_groups"], 1.0, ""),
        "groups_per_token": fill(columns["moe_groups_per_token"], 1.0, ""),
        "prediction_layers": fill(columns["mtp_layers"], 0.0, ""),
    }


def _map_layout(
    table: pd.DataFrame, notes: Texts, columns: dict[str, npt.NDArray[np.float64]], found: Findings
) -> dict[str, npt.NDArray[np.float64]]:
    fill = found.fill
    t, p = columns["tp"], columns["pp"]
    c = fill(columns["cp"], 1.0, "cp 1")
    experts = fill(columns["moe_experts"], 0.0, "")
    dp = columns["dp"].copy()
    open_dp = np.isnan(dp) & ~np.isnan(columns["num_gpus"])
    dp[open_dp] = (columns["num_gpus"] / (t * p * c))[open_dp]
    found.refuse(np.isnan(dp), "missing_field", "Not given: dp, nor num_gpus to derive it from.")
    ep = np.where(experts > 0, fill(columns["ep"], 1.0, ""), 1.0)
    sizes = (re.search(r"(?i)\bETP ?= ?([1-9]\d{0,5})\b", text) for text in notes.different)
    noted = notes.each((float(size[1]) if size else np.nan for size in sizes), np.float64)
    # Megatron splits experts like the rest by default; more expert ranks than replicas show another setting.
    etp = np.where(np.isnan(noted), np.where(ep > dp * c, 1.0, t), noted)
    zero = fill(columns["zero_stage"], 1.0, "zero_stage 1")
    fsdp = fill(columns["fsdp"], np.where(zero >= 3, 1.0, 0.0), "")
    recompute = [str(text) for text in table["recompute"]]
    found.assume(np.array([text == "" for text in recompute], bool), "recompute none")
    policies = [recompute_of(text or "none", layers) for text, layers in zip(recompute, columns["layers"], strict=True)]
    found.refuse(
        np.array([policy is None for policy in policies], bool),
        "unknown_recompute",
        [
            f"Recomputation {text[:60]!r} is not covered; modules are {', '.join(MODULES)}, joined by +."
            for text in recompute
        ],
    )
    known = [policy or RecomputePolicy("none") for policy in policies]
    dtype = [str(text) for text in table["dtype"]]
    bits = np.array([bits_of(text) or np.nan for text in dtype], np.float64)
    found.refuse(np.array([text == "" for text in dtype], bool), "missing_field", "Not given: dtype.")
    found.refuse(
        np.isnan(bits),
        "unknown_precision",
        [f"Precision {text[:40]!r} is not covered; it must be bf16, fp16, fp8, mxfp8, fp4 or nvfp4." for text in dtype],
    )
    vpp = fill(columns["vpp"], 1.0, "vpp 1")
    chunks = np.where(p > 1, vpp, 1.0)
    schedule = _map_schedule(table, p, chunks, found)
    stage_layout = _stage_layout(table, columns, p, chunks, found)
    return {
        "tensor_par": t,
        "pipeline_par": p,
        "data_par": dp,
        "context_par": c,
        "expert_par": ep,
        "expert_tensor_par": np.where(experts > 0, etp, 1.0),
        "pipeline_interleaving": chunks,
        "schedule": schedule,
        "stage_layout": stage_layout,
        "microbatch_size": columns["mbs"],
        "batch_size": columns["gbs"],
        "sequence_par": fill(columns["seq_parallel"], np.where(t > 1, 1.0, 0.0), "seq_parallel tp > 1"),
        "zero_stage": zero,
        "fully_sharded": fsdp,
        "linear_bits": bits,
        "recompute": np.array([float(RECOMPUTES.index(policy.kind)) for policy in known]),
        "recompute_share": np.array([policy.share for policy in known]),
        "recompute_modules": np.array([module_bits(policy.modules) for policy in known]),
    }


def _map_schedule(
    table: pd.DataFrame, stages: npt.NDArray[np.float64], chunks: npt.NDArray[np.float64], found: Findings
) -> npt.NDArray[np.float64]:
    """The pipeline's schedule of every row by its column, a position in `SCHEDULES`; 1F1B or interleaved where none."""
    words = [str(text).strip().lower() for text in table["schedule"]]
    found.refuse(
        np.array([word != "" and word not in SCHEDULES for word in words], bool),
        "schedule_not_modelled",
        [f"Schedule {word[:40]!r} is not covered; it must be one of {', '.join(SCHEDULES)}." for word in words],
    )
    named = np.array([SCHEDULES.index(word) if word in SCHEDULES else -1 for word in words], np.int64)
    return np.where((named < 0) | (stages <= 1), plain_schedule(chunks), interleaved_where(named, chunks)).astype(float)


def _stage_layout(
    table: pd.DataFrame,
    columns: Mapping[str, npt.NDArray[np.float64]],
    stages: npt.NDArray[np.float64],
    chunks: npt.NDArray[np.float64],
    found: Findings,
) -> npt.NDArray[np.float64]:
    """Return the stage layout of every row, a position among the words of the field; even if not given."""
    positions, layers = np.full(len(table), float(EVEN)), columns["layers"]
    predictions = np.nan_to_num(columns["mtp_layers"], nan=0.0)
    for row, text in enumerate(str(word).strip() for word in table["layout"]):
        if not text or not stages[row] > 1 or np.isnan(layers[row]):
            continue
        only = np.arange(len(table)) == row
        try:
            layout = layout_of_word(text)
            if layout.layers or layout.rule not in (EVEN, BALANCED):
                split_of(layout, int(layers[row]), int(stages[row]), int(chunks[row]))
            if layout.layers and predictions[row] and sum(layout.predictions) != predictions[row]:
                raise LayerSplitError(f"it lists {sum(layout.predictions)} prediction layers, not mtp_layers")
            positions[row] = by_name("stage_layout").position(layout.word)
        except StageLayoutError as error:
            found.refuse(only, "bad_value", f"layout: {error}")
        except LayerSplitError as error:
            found.refuse(only, "impossible_split", f"Layout {text[:60]!r} does not fit the model: {error}.")
    return positions
