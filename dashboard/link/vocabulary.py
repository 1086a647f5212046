"""What the parameters of a link are called, and the sentences about those that mean nothing."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from dashboard.link import scenario_parameters
from engine.columns import UnknownColumn, by_name
from models.documents import near_matches

__all__ = ["WORDS", "about", "refused", "unknown"]

_MOST_LISTED: Final = 8
_FEW: Final = 5
_MOST_TOLD: Final = 3
_SHOWN: Final = 40

WORDS: Final[Mapping[str, str]] = {
    **{name: name for name in scenario_parameters.NAMES},
    "cell": "cell", "id": "execution", "metric": "metric", "download": "choice of executions to download",
    "map_x": "axis across", "map_y": "axis up", "map_facet": "field with a map per value", "map_at": "cell",
    "map_domain": "colours", "map_table": "switch to a table",
    "execution_b": "execution B", "execution_figure": "figure of the formula", "execution_block": "kind of block",
    "whatif_changes": "changes of What-if", "whatif_around": "base of the studies", "whatif_step": "step of a change",
    "whatif_one": "parameter of the sweep", "whatif_x": "parameter across", "whatif_y": "parameter up",
    "whatif_grid": "grid", "whatif_batch": "batch of the sizes", "whatif_size_show": "view of the sizes",
    "whatif_range": "range of sizes", "whatif_input": "kind of input",
    "memory_tier": "memory", "memory_hbm": "HBM", "memory_sort": "order",
    "pareto_x": "axis across", "pareto_y": "axis up", "pareto_z": "third figure", "pareto_xscale": "scale across",
    "pareto_yscale": "scale up", "pareto_xbetter": "direction across", "pareto_ybetter": "direction up",
    "pareto_zbetter": "direction of the third figure", "pareto_close": "switch for close executions",
    "pareto_columns": "switch for all columns",
    "pareto_b": "second scenario", "pareto_c": "third scenario", "pareto_d": "fourth scenario",
    "compare_b": "second scenario", "compare_c": "third scenario", "compare_d": "fourth scenario",
    "compare_metric": "metric", "compare_domain": "colours", "compare_pair": "pair of scenarios",
    "results_where": "filters", "results_sort": "column to sort by", "results_order": "direction",
    "results_size": "rows per page", "results_page": "page", "results_columns": "columns",
    "results_cell": "cell that does not filter",
    "serving_model": "model", "serving_system": "system", "serving_procs": "number of GPUs",
    "serving_prompt": "prompt length", "serving_output": "output length", "serving_ttft": "limit on the first token",
    "serving_tpot": "limit per token", "serving_price": "price", "serving_weight_bits": "bits of the weights",
    "serving_kv_bits": "bits of the KV cache", "serving_launch": "launch modes", "serving_by": "order",
    "serving_only": "selection", "serving_columns": "switch for all columns", "serving_id": "deployment",
    "validation_errors": "kind of error", "validation_field": "field", "validation_run": "run",
    "validation_hardware": "hardware", "validation_family": "family", "validation_source": "source",
    "validation_calculon": "comparison with Calculon",
    "calibrate_base": "base", "calibrate_example": "example", "calibrate_parameters": "parameters to fit",
    "calibrate_rank": "kind of runs", "calibrate_system": "system",
    "library_kind": "kind", "library_item": "entry", "library_edit": "entry to edit",
    "scenarios_kind": "kind", "scenarios_pick": "picked entries",
    "execution_run_tokens": "number of tokens", "execution_run_mtbf_h": "time between failures",
    "execution_run_interval_s": "time between checkpoints", "execution_run_restart_s": "time to restart",
    "execution_run_storage_gb_per_s": "storage bandwidth", "execution_run_bytes_per_parameter": "checkpoint size",
    "execution_run_power_w": "power", "execution_run_power_share": "share of the power",
    "execution_run_pue": "power usage effectiveness", "execution_run_usd_low": "lowest price",
    "execution_run_usd_high": "highest price",
}  # fmt: skip
"""Every parameter that some page reads -> what it is."""

_MEANT: Final[Mapping[str, Sequence[str]]] = {
    "axes": ("map_x", "map_y"), "axis": ("map_x", "map_y"), "x": ("map_x",), "y": ("map_y",),
    "facet": ("map_facet",), "filter": ("results_where",), "filters": ("results_where",),
    "where": ("results_where",), "sort": ("results_sort",), "order": ("results_order",), "page": ("results_page",),
    "columns": ("results_columns",), "gpus": ("procs",), "num_procs": ("procs",), "datatype": ("type",),
    "dtype": ("type",), "batch_size": ("batch",), "max_batch_size": ("batch",), "cost_model": ("cost",),
}  # fmt: skip
"""What people may write -> what it is called here."""


def refused(name: str, text: str, default: str, accepted: Collection[str] | re.Pattern[str]) -> str:
    """The sentence about a value that cannot be, with what would do and what is shown instead."""
    would = ""
    if not isinstance(accepted, re.Pattern):
        options = [option for option in accepted if option]
        near = near_matches(text, options)
        if near:
            would = f"; did you mean {' or '.join(near)}"
        elif len(options) <= _MOST_LISTED:
            would = f"; it must be {_either(options)}"
        else:
            would = f"; it may be {', '.join(options[:_FEW])} or one of {len(options) - _FEW} others"
    instead = f"Showing {_shown(default)} instead." if default else "It is left out."
    return f"{about(name, text)}{would}. {instead}"


def about(name: str, text: str) -> str:
    """How the sentence about a value that cannot be begins."""
    words = WORDS.get(name, name)
    return f"The link's {words if words == name else f'{words} ({name})'} cannot be {text[:_SHOWN]!r} here"


def unknown(names: Collection[str]) -> dict[str, str]:
    """A sentence per name of a parameter that no page reads."""
    strange = [name for name in names if name not in WORDS]
    told = {name: f"The link's {name[:_SHOWN]!r} means nothing here and is ignored{_near(name)}."
            for name in strange[:_MOST_TOLD]}  # fmt: skip
    if len(strange) > _MOST_TOLD:
        told[strange[_MOST_TOLD]] = f"{len(strange) - _MOST_TOLD:,} further names in the link mean nothing here."
    return told


def _near(name: str) -> str:
    near = _MEANT.get(name.lower()) or near_matches(name, list(WORDS))
    return f"; did you mean {' or '.join(near)}" if near else ""


def _either(options: Sequence[str]) -> str:
    return options[0] if len(options) == 1 else f"{', '.join(options[:-1])} or {options[-1]}"


def _shown(value: str) -> str:
    """A value as a reader knows it: the label of a column."""
    try:
        label = by_name(value).label
    except UnknownColumn:
        return value
    return f"{label} ({value})"
