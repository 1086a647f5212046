"""Tables of runs as people write them: usual spellings of columns, rates of all GPUs, models of the library by name.

Every table comes out with the columns of the template. Remarks name, row by row, the values that are taken
from the library or converted. Columns of unknown meaning stay unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
import pandas as pd

import models
from engine.calibrate.choice import CalibrateError
from engine.calibrate.template import FIELDS
from engine.cost_models.calibrated import model_shapes
from engine.executions.field_values import number_in
from engine.validation.mapping import map_shapes
from engine.validation.reading import VTRAIN, runs_of
from models.documents import near_matches

__all__ = ["CONVERTED", "NaturalTable", "field_of", "read_natural"]

_SPELLINGS: Final[Mapping[str, str]] = {
    "id": r"id|run|run (?:id|name)|name|job(?: id)?|experiment",
    "hardware": r"hardware|gpu(?: type| model| name)?|accelerator|device(?: type)?|chip",
    "framework": r"framework|software|stack",
    "model": r"model(?: name)?|network|architecture",
    "hidden": r"hidden|hidden (?:size|dim)|d model",
    "ffn": r"ffn|ffn hidden size|intermediate size|d ff",
    "layers": r"layers|(?:num|n) layers|blocks",
    "heads": r"heads|(?:num|n) (?:attention )?heads|num attention heads",
    "kv_heads": r"kv heads|num (?:kv|key value) heads|num query groups",
    "vocab": r"vocab|vocab size|vocabulary",
    "seq_len": r"seq(?:uence)?(?: len| length| size)?|seqlen|context(?: length)?|tokens per (?:seq|sequence|sample)",
    "num_gpus": r"(?:num |n )?gpus|ngpus|gpu count|world size|(?:num )?devices|(?:num )?accelerators",
    "gpus_per_node": r"gpus per (?:node|host)",
    "tp": r"tp(?: size)?|tensor(?: model)? parallel(?:ism)?(?: size)?",
    "pp": r"pp(?: size)?|pipeline(?: model)? parallel(?:ism)?(?: size)?",
    "dp": r"dp(?: size)?|data parallel(?:ism)?(?: size)?|replicas",
    "cp": r"cp(?: size)?|context parallel(?:ism)?(?: size)?",
    "ep": r"ep(?: size)?|expert(?: model)? parallel(?:ism)?(?: size)?",
    "vpp": r"vpp|vp|virtual (?:pipeline|stages)(?: size)?|interleav(?:e|ing)|chunks",
    "mbs": r"mbs|micro ?batch(?: size)?|micro bs",
    "gbs": r"gbs|(?:global )?batch(?: size)?|global bs|batch(?: size)? (?:global|total)",
    "dtype": r"dtype|precision|data ?type|number format",
    "recompute": r"recompute|recomputation|activation (?:checkpointing|recomputation)|checkpointing|ac",
    "zero_stage": r"zero(?: stage)?",
    "fsdp": r"fsdp",
    "seq_parallel": r"sp|seq(?:uence)? parallel(?:ism)?",
    "mem_gib": r"(?:peak |max )?mem(?:ory)? gib(?: per gpu)?",
    "date": r"date",
    "notes": r"notes?|comments?",
}
"""Spellings of the template's columns, as `_words` has them."""
_STEP: Final = (
    r"(?:(?:mean |avg |average |measured |elapsed )?(?:step|iter(?:ation)?) ?time|(?:elapsed )?time per "
    r"(?:step|iter(?:ation)?))"
)
_EVERY: Final = r"(?:mean |avg |average |measured |total )?(?:throughput )?"
_MEASURES: Final[Mapping[str, str]] = {
    "step_time_s": rf"{_STEP}(?: s)?|s per (?:step|iter(?:ation)?)|{_STEP} s",
    "step_time_ms": rf"{_STEP} ms|ms per (?:step|iter(?:ation)?)",
    "tokens_per_s": rf"{_EVERY}tokens per s(?: total| all gpus)?",
    "tokens_per_s_per_gpu": rf"{_EVERY}tokens per (?:s per gpu|gpu per s|s gpu)|tgs",
    "samples_per_s": rf"{_EVERY}(?:samples|sequences|seqs) per s",
    "tflops_per_gpu": rf"{_EVERY}(?:model |achieved )?tflops?(?: per s)?(?: per gpu)?",
}
"""Spellings of measured columns."""
CONVERTED: Final = ("step_time_ms", "tokens_per_s", "samples_per_s")
"""Measured columns that become columns of the template."""
_CONVENTION: Final = re.compile(r" ?\b(causal|full)\b ?")
_SIZES: Final = ("hidden", "ffn", "layers", "heads", "vocab")
"""Sizes that a row has if its model is to be another than the library's."""


_SHAPES: Final = (
    *("hidden", "feedforward", "num_blocks", "attn_heads", "key_value_heads", "attn_size", "value_size"),
    *("vocabulary", "seq_size", "gated", "tied_embeddings", "latent", "query_rank", "key_value_rank", "rope_size"),
    *("window", "window_chunked", "full_attention_every", "experts", "experts_per_token", "expert_feedforward"),
    *("shared_experts", "leading_dense", "experts_every", "expert_groups", "groups_per_token", "prediction_layers"),
)
"""Sizes of a model that the cost model reads."""


@dataclass(frozen=True, slots=True)
class NaturalTable:
    """A table with the columns of the template, cells as text; what was taken from elsewhere, and faults [rows]."""

    table: pd.DataFrame
    remarks: tuple[str, ...]
    faults: tuple[str, ...]


def field_of(header: str) -> str:
    """Return the field of runs that a column's header means, also `step_time_ms`, `tokens_per_s` and `samples_per_s`;
    the header itself if nothing here knows it.

    Args:
        header: name of a column, in any usual spelling.
    """
    stripped = header.strip()
    if stripped.lower() in FIELDS:
        return stripped.lower()
    words = _CONVENTION.sub(" ", _words(stripped)).strip()
    for name, pattern in (*_MEASURES.items(), *_SPELLINGS.items()):
        if re.fullmatch(pattern, words):
            return name
    return stripped


def _words(header: str) -> str:
    """Return a header in lower-case words: "TFLOP/s/GPU" -> "tflop per s per gpu"."""
    text = re.sub(r"[()\[\]{},:]", " ", header.lower().replace("#", " num "))
    text = re.sub(r"[\s_\-.]+", " ", re.sub(r"\s*/\s*", " per ", text)).strip()
    text = re.sub(r"\b(?:sec|secs|second|seconds)\b", "s", text)
    text = re.sub(r"\b(?:tok|toks|token)\b", "tokens", text)
    return re.sub(r"\btflops per s\b", "tflops", text)


def read_natural(table: pd.DataFrame, name: str, given: Mapping[str, str] | None = None) -> NaturalTable:
    """Return a table with the columns of the template.

    Args:
        table: any columns, cells as text [rows].
        name: of the table, for messages.
        given: fields of all rows that do not give them themselves.

    Raises `CalibrateError` for two columns with one meaning.
    """
    remarks: list[list[str]] = [[] for _ in range(len(table))]
    faults = [""] * len(table)
    if set(VTRAIN) <= {str(column).strip() for column in table.columns}:
        return NaturalTable(table, ("",) * len(table), tuple(faults))
    meant = {column: field_of(str(column)) for column in table.columns}
    for field in FIELDS:
        headers = [str(column) for column, found in meant.items() if found == field]
        if len(headers) > 1:
            raise CalibrateError(f"The columns {' and '.join(headers)} of {name} both mean {field}; leave one out.")
    found = table.rename(columns=meant)
    for field, value in (given or {}).items():
        found[field] = [cell or value for cell in _cells(found, field) or [""] * len(found)]
    _add_convention(found, [str(column) for column in table.columns])
    _fill_models(found, remarks, faults)
    _convert_measures(found, remarks)
    return NaturalTable(found, tuple("; ".join(each) for each in remarks), tuple(faults))


def _add_convention(table: pd.DataFrame, headers: list[str]) -> None:
    """Take how TFLOP/s count attention from a header such as "TFLOP/s/GPU (causal)"."""
    if "tflops_kind" in table or "tflops_per_gpu" not in table:
        return
    header = next(each for each in headers if field_of(each) == "tflops_per_gpu")
    if told := _CONVENTION.search(_words(header)):
        table["tflops_kind"] = told[1]


def _cells(table: pd.DataFrame, field: str) -> list[str]:
    return (
        ["" if each != each or each is None else str(each).strip() for each in table[field]] if field in table else []
    )


def _number(text: str) -> float:
    found = number_in(text)
    return float("nan") if found is None else float(found)


def _convert_measures(table: pd.DataFrame, remarks: list[list[str]]) -> None:
    """Turn milliseconds, and rates of all GPUs, into the template's columns where these are empty."""
    batch = [_number(text) for text in _cells(table, "gbs")] or [float("nan")] * len(table)
    conversions: tuple[tuple[str, str, Callable[[float, int], float], str], ...] = (
        ("step_time_ms", "step_time_s", lambda value, row: value / 1e3, "step time from milliseconds"),
        ("samples_per_s", "step_time_s", lambda value, row: batch[row] / value, "step time from samples/s and gbs"),
        (
            "tokens_per_s",
            "tokens_per_s_per_gpu",
            lambda value, row: value / _gpus(table, row),
            "tokens/s taken as of all GPUs together",
        ),
    )
    for source, target, convert, told in conversions:
        if source not in table:
            continue
        cells = _cells(table, target) or [""] * len(table)
        for row, text in enumerate(_cells(table, source)):
            if cells[row] or not text:
                continue
            value = _number(text)
            converted = convert(value, row) if value > 0 else float("nan")
            # An unreadable cell stays as it is, so that the message names it.
            cells[row] = repr(float(converted)) if converted == converted else text if value != value else ""
            remarks[row].append(told)
        table[target] = cells


def _gpus(table: pd.DataFrame, row: int) -> float:
    """Return the number of GPUs of a row, from the degrees if it is not given; not a number if neither says it."""
    cells = _cells(table, "num_gpus")
    stated = _number(cells[row]) if cells else float("nan")
    if stated == stated:
        return stated
    degrees = [_cells(table, name) for name in ("tp", "pp", "dp", "cp")]
    needed = [_number(cells[row]) if cells else float("nan") for cells in degrees[:3]]
    context = _number(degrees[3][row]) if degrees[3] else 1.0
    return float(np.prod(needed)) * (context if context == context and context > 0 else 1.0)


def _fill_models(table: pd.DataFrame, remarks: list[list[str]], faults: list[str]) -> None:
    """Fill in the sizes of models of the library where a row names one and gives no sizes."""
    given = {name: _cells(table, name) or [""] * len(table) for name in _SIZES}
    columns: dict[str, list[str]] = {}
    for row, text in enumerate(_cells(table, "model")):
        if not text or any(given[name][row] for name in ("hidden", "layers")):
            continue
        known = _library_name(text)
        if known is None:
            near = near_matches(text, models.names())
            meant = f"; did you mean {near[0]}?" if near else "."
            faults[row] = f"model {text[:60]!r} is not in the library{meant} Give hidden, ffn, layers, heads and vocab"
            continue
        sizes = _sizes_of(known)
        if sizes is None:
            faults[row] = f"model {known} has layers that a table of runs cannot state; use a log or another model"
            continue
        taken = []
        for name, value in sizes.items():
            cells = columns.setdefault(name, _cells(table, name) or [""] * len(table))
            if not cells[row]:
                cells[row] = value
                taken += [f"seq_len {value}"] if name == "seq_len" else []
        remarks[row].append(f"sizes{' and ' + taken[0] if taken else ''} of {known} of the library")
    for name, cells in columns.items():
        table[name] = cells


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", name.lower())


@cache
def _library_names() -> dict[str, str]:
    """Return the names of the library's models by their spellings without signs; titles count unless several share
    one."""
    found = {_key(name): name for name in models.names()}
    titles: dict[str, list[str]] = {}
    for name in models.names():
        titles.setdefault(_key(models.load(name).title or name), []).append(name)
    return {key: names[0] for key, names in titles.items() if len(names) == 1} | found


def _library_name(text: str) -> str | None:
    """Return the model of the library that a text names: "Llama 3 8B", "meta-llama/Meta-Llama-3-8B", "llama3-8b"."""
    known = _library_names()
    for spelling in (text, text.rpartition("/")[2], re.sub(r"(?i)^meta[-_ ]?", "", text.rpartition("/")[2])):
        if (found := known.get(_key(spelling))) is not None:
            return found
    return None


@cache
def _sizes_of(name: str) -> Mapping[str, str] | None:
    """Return the sizes of a model as cells of a table of runs; None if such cells cannot say all that counts."""
    shapes = model_shapes(models.load(name))
    value: dict[str, Any] = {column: float(np.asarray(getattr(shapes, column)).ravel()[0]) for column in _SHAPES}
    if shapes.pattern is not None:
        return None
    attn = ""
    if value["latent"]:
        nope = value["attn_size"] - value["rope_size"]
        attn = (
            f"MLA q_lora{value['query_rank']:g} kv_lora{value['key_value_rank']:g} nope{nope:g} "
            f"rope{value['rope_size']:g} v{value['value_size']:g}"
        )
    elif value["window"]:
        attn = f"sliding-window {value['window']:g}"
    cells = {
        "hidden": value["hidden"],
        "ffn": value["feedforward"],
        "layers": value["num_blocks"],
        "heads": value["attn_heads"],
        "kv_heads": value["key_value_heads"],
        "head_dim": value["value_size"],
        "vocab": value["vocabulary"],
        "seq_len": value["seq_size"],
        "moe_experts": value["experts"],
        "moe_topk": value["experts_per_token"],
        "moe_ffn": value["expert_feedforward"],
        "moe_shared": value["shared_experts"],
        "moe_dense_layers": value["leading_dense"],
        "moe_groups": value["expert_groups"],
        "moe_groups_per_token": value["groups_per_token"],
        "mtp_layers": value["prediction_layers"],
    }
    texts = {name: f"{number:.0f}" for name, number in cells.items() if number or not name.startswith("moe_")}
    texts |= {"gated_mlp": str(bool(value["gated"])), "tied_embeddings": str(bool(value["tied_embeddings"]))}
    texts |= {"attn": attn} if attn else {}
    # What the cells are read as decides whether they say the model.
    read = map_shapes(runs_of(pd.DataFrame([{**texts, "hardware": "", "id": name}])).table)
    same = all(float(read[column][0]) == number for column, number in value.items() if column in read)
    return texts if same else None
