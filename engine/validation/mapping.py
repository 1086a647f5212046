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
    DATATYPES,
    LINEAR_BITS,
    LINEAR_FORMATS,
    RECOMPUTES,
    SCHEDULES,
    Accelerators,
    Case,
    accelerator_of,
    calibrated,
    generation_of,
    interleaved_where,
    plain_schedule,
    refusals,
)
from engine.executions.layer_splits import LayerSplitError, split_of
from engine.validation.checks import Findings, refuse_impossible
from engine.validation.notes import stating, tensors_on_host
from engine.validation.reading import Runs
from engine.validation.sites import describe_sites
from engine.validation.software import infer_software
from engine.validation.texts import Texts
from engine.validation.unread import name_unread_words
from engine.validation.words import PRECISIONS, RecomputePolicy, accelerator_named, datatype_of, recompute_of

__all__ = ["REASONS", "Mapped", "map_runs", "map_shapes"]

GIGA = 1e9
"""Bytes per second of a GB/s, and bytes of a GB."""
NETWORKS = ("network_sizes", "network_bandwidths")
"""Fields of an accelerator that have a value for each tier."""
SEVERAL = (*NETWORKS, "scaled_peaks")
"""Fields of an accelerator that are tuples."""

REASONS: dict[str, str] = {
    "": "Predicted.",
    "bad_value": "A field cannot be read or is out of range.",
    "missing_field": "A field that the prediction needs is not given.",
    "impossible_product": "The degrees of parallelism do not multiply to the number of processors.",
    "impossible_split": "A size cannot be split by its degree of parallelism.",
    "implausible_measurement": "The measured time would need more than the peak, or next to nothing of it.",
    "unknown_hardware": "The accelerator is not in the library.",
    "not_a_transformer": "The model has layers other than attention and feed-forward.",
    "unknown_precision": "The precision is none that the cost model covers.",
    "unknown_recompute": "The recomputation policy is none that the cost model covers.",
    "schedule_not_modelled": "The pipeline schedule is none that the cost model covers.",
    "offload_not_modelled": "Something is offloaded to the host in a way that the model does not cover.",
}
"""Every code a row can have as `reason`, with its meaning."""

RUNS_NEED: dict[str, str] = {
    "schedule_needs_pipeline": "pp must be above 1",
    "schedule_against_interleaving": "vpp must be 1 for zb_h1 and dualpipe, 2 for zb_v and dualpipev, else above 1",
    "schedule_needs_microbatches": "zb_h1 needs pp microbatches, zb_v 2 pp - 1, dualpipe and dualpipev 2 pp",
    "schedule_needs_even": "dualpipe needs an even pp and an even number of microbatches",
    "schedule_needs_whole_groups": "combined_1f1b needs a multiple of pp microbatches",
}
"""Needs of schedules in columns of a run, by the code of `refusals`."""
NEEDED = ("hidden", "ffn", "layers", "heads", "vocab", "seq_len", "tp", "pp", "mbs", "gbs")
LATENT = {"q_lora": 1536.0, "kv_lora": 512.0, "nope": 128.0, "rope": 64.0, "v": 128.0}
"""Ranks and widths of multi-head latent attention where a row does not print them: DeepSeek-V2 and V3."""
OTHER_MIXERS = r"mamba|hybrid|linear|state.space|\bssm\b|rwkv|retention|lightning|delta"
"""Pattern of layers in the column `attn` that take the place of attention."""
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
    _refuse_families(Texts(table["family"]), Texts(table["attn"]), notes, found)
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
    values |= _map_datatypes(table, values, found)
    software, rules, faults, remarks = infer_software(table, generation)
    for row, said in enumerate(remarks):
        found.assumed[row] += said
    found.refuse(np.array([bool(fault) for fault in faults], bool), "bad_value", [f"{fault}." for fault in faults])
    found.assume(tensors_on_host(table), "notes put tensors on the host: memory left open")
    name_unread_words(table, found, values["pipeline_interleaving"] > 1)
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
        "linear_format",
    ):
        safe[name] = np.where(supported, safe[name], 0.0)
    assumptions = np.array(["; ".join(parts) for parts in found.assumed], object)
    several: dict[str, Any] = {
        field: tuple(values for name, values in safe.items() if name.startswith(field)) for field in SEVERAL
    }
    return Mapped(table, Case.of({**safe, **several}), found.reason, found.text, assumptions, rules)


def map_shapes(table: pd.DataFrame) -> dict[str, npt.NDArray[np.float64]]:
    """Return the sizes of the models of runs, by the names of `engine.cost_models.calibrated`; not a number where a run
    does not give one [rows].

    Args:
        table: runs in one type per field, as `engine.validation.reading` returns them [rows].
    """
    columns = {name: table[name].to_numpy(np.float64) for name in table.columns if table[name].dtype == np.float64}
    return _map_model(table, Texts(table["notes"]), columns, Findings(len(table)))


def _refuse_families(family: Texts, attention: Texts, notes: Texts, found: Findings) -> None:
    hybrid = family.saying("mamba|hybrid") | stating(notes, "Hybrid Mamba|linear.attention")[0]
    found.refuse(hybrid, "not_a_transformer", "Hybrid models with state-space layers are not covered.")
    found.refuse(
        attention.saying(OTHER_MIXERS),
        "not_a_transformer",
        [f"attn {text[:60]!r} is no attention that is covered." for text in attention.rows],
    )
    found.refuse(family.saying("zerobubble"), "schedule_not_modelled", "Zero-bubble schedules are not covered.")
    offloading = family.each((text.lower() == "dense_zero_offload" for text in family.different), np.bool_)
    found.refuse(
        offloading | stating(notes, "(?-i:(?:optimizer|param) offload=True)")[0],
        "offload_not_modelled",
        "DeepSpeed's offload of optimizer or weights to the host is not covered.",
    )
    found.refuse(
        stating(notes, r"\boffloading of \d+ layers")[0],
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
    plain = [field.name for field in fields(Accelerators) if field.name not in SEVERAL]
    values = {
        field: np.array([facts[name][field] if name in facts else np.nan for name in names], np.float64)
        for field in plain
    }
    for place in range(max((len(each["scaled_peaks"]) for each in facts.values()), default=0)):
        peaks = {name: each["scaled_peaks"][place] for name, each in facts.items()}
        values[f"scaled_peaks {place}"] = np.array([peaks.get(name, np.nan) for name in names], np.float64)
    values |= _map_networks(table, names, systems)
    generation = np.array([generation_of(system) if (system := systems[name]) else "" for name in names], object)
    given = np.array([bool(name) for name in names], bool)
    found.refuse(~given, "missing_field", "Not given: hardware.")
    found.refuse(
        np.array([systems[name] is None for name in names], bool),
        "unknown_hardware",
        [f"{name[:60]!r} is not an accelerator of the library." for name in names],
    )
    modelled = {name for name, system in systems.items() if system and name not in known and not calibrated(system)}
    found.assume(
        np.array([name in modelled for name in names], bool),
        "kernel rates modelled, no run on this generation was measured",
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
    every = np.array([_full_attention_every(text) for text in attn], np.float64)
    packed, _ = stating(notes, "packed")
    found.assume(packed, "read from notes: packed examples")
    experts = fill(columns["moe_experts"], 0.0, "")
    shared_head = np.array([bool(re.search(r"\bmqa\b|multi[- ]query", text)) for text in attn], bool)
    grouped = np.array([bool(re.search(r"\bgqa\b|grouped[- ]query", text)) for text in attn], bool)
    key_value_heads = fill(columns["kv_heads"], np.where(shared_head, 1.0, heads), "kv_heads as many as heads", grouped)
    found.assume(shared_head & (key_value_heads != 1), "attn MQA not read: kv_heads is above 1")
    return {
        "hidden": columns["hidden"],
        "feedforward": columns["ffn"],
        "num_blocks": columns["layers"],
        "attn_heads": heads,
        "key_value_heads": np.where(mla, heads, key_value_heads),
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
        "full_attention_every": np.where(packed, 0.0, every),
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


def _full_attention_every(attn: str) -> float:
    """Return which blocks attend to everything, as every so-manieth; 0 where all look back over the window."""
    if part := re.search(r"(\d+) of (\d+) layers sliding", attn):
        return float(part[2]) if int(part[2]) == int(part[1]) + 1 else 0.0
    return 2.0 if "alternating" in attn else 0.0


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
    found.assume(np.isfinite(noted), "read from notes: ETP")
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
    vpp = fill(columns["vpp"], 1.0, "vpp 1")
    chunks = np.where(p > 1, vpp, 1.0)
    microbatches = columns["gbs"] / (dp * columns["mbs"])
    schedule = _map_schedule(table, p, chunks, microbatches, found)
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
        "recompute": np.array([float(RECOMPUTES.index(policy.kind)) for policy in known]),
        "recompute_share": np.array([policy.share for policy in known]),
        "recompute_modules": np.array([module_bits(policy.modules) for policy in known]),
    }


def _map_datatypes(
    table: pd.DataFrame, values: Mapping[str, npt.NDArray[np.float64]], found: Findings
) -> dict[str, npt.NDArray[np.float64]]:
    """Return width and format of the linear layers of every row.

    A datatype that the accelerator does not compute in counts as the plain one of its width.
    """
    texts = [str(text) for text in table["dtype"]]
    known = [datatype_of(text) for text in texts]
    found.refuse(np.array([text == "" for text in texts], bool), "missing_field", "Not given: dtype.")
    words = ", ".join(each.split("|")[0] for each in PRECISIONS.values())
    found.refuse(
        np.array([each is None for each in known], bool),
        "unknown_precision",
        [f"Precision {text[:40]!r} is not covered; it must be one of {words}." for text in texts],
    )
    place = [DATATYPES.index(each.name) if each else -1 for each in known]
    formats = np.array([LINEAR_FORMATS[number] if number >= 0 else 0.0 for number in place], np.float64)
    bits = np.array([LINEAR_BITS[number] if number >= 0 else np.nan for number in place], np.float64)
    plain = np.array([float(each.bits) if each else np.nan for each in known], np.float64)
    rows = np.arange(len(texts))
    peaks = np.array([value for name, value in values.items() if name.startswith("scaled_peaks")])
    peak = peaks[np.maximum(formats - 1.0, 0.0).astype(int), rows] if len(peaks) else np.zeros(len(texts))
    foreign = (formats > 0) & ~(peak > 0)
    found.assume(foreign, "dtype at the rate of the plain datatype of its width")
    return {"linear_bits": np.where(foreign, plain, bits), "linear_format": np.where(foreign, 0.0, formats)}


def _map_schedule(
    table: pd.DataFrame,
    stages: npt.NDArray[np.float64],
    chunks: npt.NDArray[np.float64],
    microbatches: npt.NDArray[np.float64],
    found: Findings,
) -> npt.NDArray[np.float64]:
    """The pipeline's schedule of every row by its column, a position in `SCHEDULES`; 1F1B or interleaved where none."""
    words = [str(text).strip().lower() for text in table["schedule"]]
    found.refuse(
        np.array([word != "" and word not in SCHEDULES for word in words], bool),
        "schedule_not_modelled",
        [f"Schedule {word[:40]!r} is not covered; it must be one of {', '.join(SCHEDULES)}." for word in words],
    )
    named = np.array([SCHEDULES.index(word) if word in SCHEDULES else -1 for word in words], np.int64)
    # Of one chunk, interleaved 1F1B is 1F1B; a run without a pipeline has no schedule.
    counted = (stages > 1) & ~np.isin(named, (-1, SCHEDULES.index("interleaved")))
    for code, rows in refusals(np.maximum(named, 0), stages, microbatches, chunks).items():
        found.refuse(
            counted & np.asarray(rows, bool),
            "schedule_not_modelled",
            [
                f"Schedule {word} cannot run on pp {p:g}, vpp {v:g} and {m:g} microbatches: {RUNS_NEED[code]}."
                for word, p, v, m in zip(words, stages, chunks, microbatches, strict=True)
            ],
        )
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
