"""What CFP published of its runs, and its communication volumes beside those that are counted here.

The volumes are of Alpa's cost model in CFP's branch. Those of three of four vectors are about 1.57 times what the
specified state machine counts: its heuristics reshard more inside chains of elementwise operations. They are not
reproduced, and both numbers are told.

Source: CFP (published README, github.com/huwf1220/ptp_parallel), performance test and communication volume test.
"""

from __future__ import annotations

from typing import Any, Final

import pandas as pd

from engine.planners.intra_operator.volumes import vector_volumes

__all__ = ["published_runs", "published_volumes"]

RUNS: Final[tuple[dict[str, Any], ...]] = (
    {"system": "CFP", "model": "gpt F", "batch": 24, "layers": 2, "devices": 4, "tflop": 59.373627899904,
     "times": (0.29200369, 0.29214811, 0.29259733), "memory_gib": 11.5, "solution": (1,) * 8},
    {"system": "Alpa d987466", "model": "gpt F", "batch": 24, "layers": 2, "devices": 8, "tflop": 59.373627899904,
     "times": (0.37685599, 0.37689264, 0.37616382), "memory_gib": None, "solution": None},
    {"system": "CFP", "model": "moe E", "batch": 64, "layers": 4, "devices": 4, "tflop": 52.9891590144,
     "times": (0.44787622, 0.44809792, 0.44744757), "memory_gib": 20.5,
     "solution": (1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1)},
)  # fmt: skip
ENUMERATED: Final = (
    ((0, 0, 0, 0), 1.63084e10, 0.789642, 0.12948, False),
    ((0, 0, 0, 1), 1.23822e10, 2.10805, 0.138838, False),
    ((0, 0, 0, 2), 5.23488e9, 0.333084, 0.118085, False),
    ((0, 0, 1, 0), 1.60068e10, None, None, True),
)
"""Vector of both layers, volume [bytes], seconds of collectives and of computation, whether the vector was inferred
because the excerpt ends before it."""
NEAR: Final = 0.05


def published_runs() -> pd.DataFrame:
    """Returns the runs that CFP published.

    Returns:
        One row per run: system, model, batch, layers, devices, tflop (of a step), times [s] (three), seconds (the
        first) [s], tflops (of all devices together) and tflops_per_device [TFLOP/s], memory_gib, solution (the vector
        of all layers, None where it was not printed), speedup (over the slowest run of the same model and batch).
    """
    table = pd.DataFrame(RUNS)
    table["seconds"] = [times[0] for times in table["times"]]
    table["tflops"] = table["tflop"] / table["seconds"]
    table["tflops_per_device"] = table["tflops"] / table["devices"]
    slowest = table.groupby(["model", "batch", "layers"])["seconds"].transform("max")
    table["speedup"] = slowest / table["seconds"]
    return table


def published_volumes() -> pd.DataFrame:
    """Returns the published volumes of gpt F (batch 16, two layers, four devices) beside those counted here.

    Returns:
        One row per vector: vector (of each layer), published_volume and counted_volume [bytes], ratio (counted over
        published), reproduced (whether they differ by less than 5 %), communication_seconds and compute_seconds as
        published [s], bytes_per_second (published volume over seconds of collectives), note.
    """
    counted = vector_volumes("gpt F", batch=16, layers=2, devices=4).set_index("vector")["volume"]
    rows = []
    for vector, volume, communication, compute, inferred in ENUMERATED:
        own = float(counted[vector])
        reproduced = abs(own / volume - 1.0) < NEAR
        note = "" if reproduced else "Not reproduced: CFP's branch reshards more between elementwise operations."
        if inferred:
            note += " The vector is inferred: the published excerpt ends before it."
        rows.append({
            "vector": vector, "published_volume": volume, "counted_volume": own, "ratio": own / volume,
            "reproduced": reproduced, "communication_seconds": communication, "compute_seconds": compute,
            "bytes_per_second": None if communication is None else volume / communication, "note": note.strip(),
        })  # fmt: skip
    return pd.DataFrame(rows)
