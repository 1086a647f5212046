"""Checks for impossible rows, and the record of each row's findings."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["Findings", "refuse_impossible"]

MOST_USED, LEAST_USED = 1.2, 5e-4
"""Shares of the peak beyond which a measured time cannot be right; the least efficient sound row reaches 0.6 %."""


class Findings:
    """Reasons and assumptions, collected row by row; the first reason of a row stays."""

    def __init__(self, size: int) -> None:
        self.reason = np.full(size, "", object)
        self.text = np.full(size, "", object)
        self.assumed: list[list[str]] = [[] for _ in range(size)]

    def refuse(self, rows: npt.NDArray[np.bool_], code: str, text: str | list[str]) -> None:
        """Gives rows without a reason the code and its sentence, one for all or one per row."""
        for row in np.flatnonzero(rows & (self.reason == "")):
            self.reason[row] = code
            self.text[row] = text if isinstance(text, str) else text[row]

    def fill(
        self,
        values: npt.NDArray[np.float64],
        default: npt.NDArray[np.float64] | float,
        what: str,
        where: npt.NDArray[np.bool_] | bool = True,
    ) -> npt.NDArray[np.float64]:
        """Returns the values with `default` where not given; says so in the rows `where` it matters unless `what` is
        empty."""
        open_rows = np.isnan(values)
        if what:
            self.assume(open_rows & where, what)
        return np.where(open_rows, default, values)

    def assume(self, rows: npt.NDArray[np.bool_], what: str) -> None:
        """Says in each of these rows what was taken because the row leaves it open."""
        for row in np.flatnonzero(rows):
            self.assumed[row].append(what)


def refuse_impossible(
    columns: dict[str, npt.NDArray[np.float64]],
    values: dict[str, npt.NDArray[np.float64]],
    found: Findings,
) -> None:
    """Refuse impossible rows: products, splits, and measurements beyond the hardware.

    Args:
        columns: values of the runs, by name of column [rows].
        values: by name of input, with defaults for missing values [rows].
        found: reasons and remarks by row; extended here.
    """
    t, p, dp, c = (values[name] for name in ("tensor_par", "pipeline_par", "data_par", "context_par"))
    product, processors = t * p * dp * c, columns["num_gpus"]
    wrong = ~np.isnan(processors) & (product != processors)
    texts = [f"tp x pp x dp x cp = {a:g} but num_gpus = {b:g}." for a, b in zip(product, processors, strict=True)]
    found.refuse(wrong, "impossible_product", texts)
    found.refuse(dp != np.round(dp), "impossible_product", "num_gpus is no multiple of tp x pp x cp.")
    flat = (values["latent"] > 0) & (values["key_value_rank"] <= 0)
    flat |= (values["attn_size"] <= 0) | (values["value_size"] <= 0)
    found.refuse(flat, "bad_value", "attn gives latent attention a width of 0.")
    grouped = np.mod(values["attn_heads"], values["key_value_heads"]) != 0
    found.refuse(grouped, "impossible_split", "heads is no multiple of kv_heads.")
    found.refuse(np.mod(values["attn_heads"], t) != 0, "impossible_split", "heads is no multiple of tp.")
    few = values["batch_size"] < dp * values["microbatch_size"]
    found.refuse(few, "impossible_split", "gbs is less than dp x mbs.")
    found.refuse(values["num_blocks"] < p, "impossible_split", "There are fewer layers than pipeline stages.")
    routed = values["experts"] > 0
    found.refuse(
        routed & (np.mod(values["experts"], values["expert_par"]) != 0),
        "impossible_split",
        "moe_experts is no multiple of ep.",
    )
    sound = (values["expert_feedforward"] > 0) & (values["experts_per_token"] <= values["experts"])
    found.refuse(routed & ~sound, "missing_field", "Not given or impossible: moe_ffn, moe_topk.")
    split = values["expert_par"] * values["expert_tensor_par"]
    found.refuse(
        routed & (split > dp * c * t),
        "impossible_split",
        [
            f"Experts are split over {n:g} processors, more than dp x cp x tp = {m:g}."
            for n, m in zip(split, dp * c * t, strict=True)
        ],
    )
    uneven = np.mod(values["batch_size"], dp * values["microbatch_size"]) != 0
    found.assume(uneven, "gbs / (dp x mbs) rounded")
    wider = (values["linear_bits"] == 8) & (values["flops8"] == 0)
    wider |= (values["linear_bits"] == 4) & (values["flops4"] == 0)
    wider &= values["linear_format"] == 0
    found.assume(wider, "dtype at the rate of the next wider one, which the accelerator has units for")
    found.refuse(
        routed & (values["leading_dense"] > values["num_blocks"]),
        "impossible_split",
        "moe_dense_layers is more than layers.",
    )
    step, tokens_rate = columns["step_time_s"], columns["tokens_per_s_per_gpu"]
    tokens = values["batch_size"] * values["seq_size"] / product
    seconds = np.where(np.isnan(step), tokens / tokens_rate, step)
    width = np.where(routed, values["experts_per_token"] * values["expert_feedforward"], values["feedforward"])
    weights = (
        values["num_blocks"] * values["hidden"] * (2.0 * values["attn_heads"] * values["value_size"] + 2.0 * width)
    )
    peak = np.where(values["linear_bits"] < 16, np.maximum(values["flops8"], values["flops16"]), values["flops16"])
    peak = np.where(values["linear_bits"] < 8, np.maximum(values["flops4"], peak), peak)
    scaled = [peaks for name, peaks in values.items() if name.startswith("scaled_peaks")]
    for place, peaks in enumerate(scaled, start=1):
        peak = np.where(values["linear_format"] == place, np.maximum(peaks, peak), peak)
    with np.errstate(invalid="ignore", divide="ignore"):
        used = 6.0 * weights * tokens / seconds / peak
    texts = [
        f"The measured time means {100.0 * share:.3g} % of the accelerator's peak; check the units of step_time_s."
        if share == share
        else ""
        for share in used
    ]
    found.refuse((used > MOST_USED) | (used < LEAST_USED), "implausible_measurement", texts)
