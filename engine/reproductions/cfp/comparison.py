"""Published results of CFP's runs, and its communication volumes compared with the counted ones.

The volumes are of Alpa's cost model in CFP's branch. For three of four vectors they are about 1.57 times the count of
the specified state machine: its heuristics reshard more inside chains of elementwise operations. They are not
reproduced; both numbers are reported.

Source: CFP (published README, github.com/huwf1220/ptp_parallel), performance test and communication volume test.
"""

from __future__ import annotations

from typing import Final

import pandas as pd

from engine.reproductions.cfp.operations import tflop_count
from engine.reproductions.cfp.published import MEASURED_ON, MEASURED_VECTORS, RUNS
from engine.reproductions.cfp.volumes import vector_volumes

__all__ = ["published_runs", "published_volumes"]

NEAR: Final = 0.05
"""Volumes that differ by less are reproduced [dimensionless]."""


def published_runs() -> pd.DataFrame:
    """Returns the runs that CFP published.

    Returns:
        One row per run: system, model, batch, layers, devices, tflop (of a step), times [s] (three), seconds (the
        first) [s], tflops (of all devices together) and tflops_per_device [TFLOP/s], memory_gib, solution (the vector
        of all layers, None where it was not printed), speedup (over the slowest run of the same model and batch).
    """
    table = pd.DataFrame(
        [
            {
                "system": each.system,
                "model": each.model,
                "batch": each.batch,
                "layers": each.layers,
                "devices": each.devices,
                "tflop": tflop_count(each.model, batch=each.batch, layers=each.layers),
                "times": each.times,
                "seconds": each.times[0],
                "memory_gib": each.memory_gib,
                "solution": tuple(one for vector in each.vectors for one in vector) or None,
            }
            for each in RUNS
        ]
    )
    table["tflops"] = table["tflop"] / table["seconds"]
    table["tflops_per_device"] = table["tflops"] / table["devices"]
    slowest = table.groupby(["model", "batch", "layers"])["seconds"].transform("max")
    table["speedup"] = slowest / table["seconds"]
    return table


def published_volumes() -> pd.DataFrame:
    """Returns the published volumes of gpt F (batch 16, two layers, four devices) and our counts.

    Returns:
        One row per vector: vector (of each layer), published_volume and counted_volume [bytes], ratio (counted over
        published), reproduced (whether they differ by less than 5 %), communication_seconds and compute_seconds as
        published [s], bytes_per_second (published volume over seconds of collectives), note.
    """
    asked = {name: int(MEASURED_ON[name]) for name in ("batch", "layers", "devices")}
    counted = vector_volumes(str(MEASURED_ON["model"]), **asked).set_index("vector")["volume"]
    rows = []
    for each in MEASURED_VECTORS:
        vector, volume, communication = each.vector, each.volume, each.communication_seconds
        own = float(counted.loc[[vector]].iloc[0])
        reproduced = abs(own / volume - 1.0) < NEAR
        note = "" if reproduced else "Not reproduced: CFP's branch reshards more between elementwise operations."
        if communication is None:
            note += " The vector is inferred: the published excerpt ends before it."
        rows.append(
            {
                "vector": vector,
                "published_volume": volume,
                "counted_volume": own,
                "ratio": own / volume,
                "reproduced": reproduced,
                "communication_seconds": communication,
                "compute_seconds": each.compute_seconds,
                "bytes_per_second": None if communication is None else volume / communication,
                "note": note.strip(),
            }
        )
    return pd.DataFrame(rows)
