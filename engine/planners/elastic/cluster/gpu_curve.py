"""The stored curve over the GPUs of a node: predicted throughput with the fewest GPUs that reach it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["CurvePoint", "gpu_curve"]


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Predicted throughput [samples/s], -1 where nothing runs; the plan's word; and the GPUs that it takes."""

    throughput: float
    plan: str
    gpus: int


NODE_GPUS: Final = 8
KEEP_SMALLER: Final = 1.01
BERT_SPEEDUP: Final = {2: 1.8, 4: 3.2, 8: 5.8}
"""Forward time of BERT on one GPU over that on several, which the artifact has instead of one n-th."""


def gpu_curve(name: str, card: Mapping[str, Any]) -> tuple[CurvePoint, ...]:
    """Returns the predicted throughput of the best data-parallel plan on 0 to 8 GPUs of a node, with one CPU thread per
    GPU, and the fewest GPUs that reach it within 1 %.

    Args:
        name: of the model.
        card: its sizes, parameters and limits, with the artifact's keys.
    """
    points = [CurvePoint(-1.0, "", 0)]
    for gpus in range(1, NODE_GPUS + 1):
        best = CurvePoint(-1.0, "", gpus)
        for recompute in ("ga", "gc"):
            for zero in ("zero-offload", "zero-dp", ""):
                found = _throughput(name, card, gpus, recompute, zero)
                if found > best.throughput:
                    best = CurvePoint(found, zero or recompute, gpus)
        before = points[-1]
        points.append(before if gpus > 1 and before.throughput * KEEP_SMALLER >= best.throughput else best)
    return tuple(points)


def _throughput(name: str, card: Mapping[str, Any], gpus: int, recompute: str, zero: str) -> float:
    """Returns the predicted throughput of one plan [samples/s], -1 where its limits forbid it; times in ms, sizes in
    MiB. Source: the artifact's `pred_throughput.py`, data-parallel family inside a node."""
    batch = float(card["global_batch"])
    atom, limit = batch / gpus, card["max_dp_atom_bsz"][zero or "DP"]["gc" if recompute == "gc" else "other"]
    if atom != int(atom) or atom > limit:
        return -1.0
    k, links, size = card["perf"], card["env"], float(card["params_M"])
    speedup = BERT_SPEEDUP.get(gpus, 1.0) if name == "bert" else float(gpus)
    forward = card["forward_ms_1gpu"] / speedup
    backward, exchange = k["k_bwd"] * forward, 8 * size * (gpus - 1) / gpus / links["B_nvlink"]
    larger, norm = max(backward, exchange), k["k_sync"]
    overlapped = larger * ((exchange / larger) ** norm + (backward / larger) ** norm) ** (1 / norm)
    copies = 4 * size / gpus / links["B_pcie"] if zero == "zero-offload" else 0.0
    synced = overlapped + k["k_off"] + copies if copies else overlapped
    update = {
        "": k["k_opt"] * size,
        "zero-offload": k["k_os_offload"] * size / gpus,
        "zero-dp": k["k_opt"] * size / gpus,
    }[zero]
    passes = 2 if recompute == "gc" else 1
    iteration = passes * forward + synced + update + k["k_swap"] + copies + k["k_const"]
    return float(1000 * batch / iteration)
