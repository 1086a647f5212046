"""Rates of whole designs from the rows of their points: of one model, or of a mix of several."""

from __future__ import annotations

import numpy as np
import pandas as pd

from engine.codesign.points import EXPLORED, FIELDS_KEPT
from engine.codesign.quantities import MEMORY
from engine.codesign.study import Study
from engine.executions.arrays import Ints
from hardware import GIB

__all__ = ["rates_of"]


def rates_of(study: Study, rows: pd.DataFrame, complete: Ints, which: int | None, *, bounded: bool) -> pd.DataFrame:
    """Return a row per design: `place`, `status` (the worst of its models), `tokens_per_s`, `samples_per_s`, `step_s`,
    and stored memory.

    Args:
        study: the study.
        rows: all points of the designs, in order.
        complete: numbers of the designs, ascending.
        which: place of the model; None for the mix, weighted by the study.
        bounded: if true, skipped points count with the highest rate that bounds allow; else without a rate.
    """
    count = len(study.models)
    shape = len(complete), count
    rate = rows["samples_per_s"].to_numpy(np.float64).reshape(shape)
    status = rows["status"].astype(str).to_numpy(object).reshape(shape)
    if bounded:
        rate = np.where(status == "skipped", rows["bound"].to_numpy(np.float64).reshape(shape), rate)
    step = rows["batch_size"].to_numpy(np.float64).reshape(shape) / rate
    length = study.sample_lengths(complete)
    memory = {
        name: rows[column].to_numpy(np.float64).reshape(shape) / GIB
        for name, column in MEMORY.items()
        if column in rows
    }
    if which is not None:
        return pd.DataFrame(
            {
                "place": np.arange(len(complete)),
                "status": status[:, which],
                "tokens_per_s": rate[:, which] * length[:, which],
                "samples_per_s": rate[:, which],
                "step_s": step[:, which],
                **{name: values[:, which] for name, values in memory.items()},
                **{
                    name: rows[name].to_numpy(np.float64).reshape(shape)[:, which]
                    for name in ("feasible", *FIELDS_KEPT, *study.document.statistics, *EXPLORED)
                    if name in rows
                },
            }
        )
    share = np.array([each.weight for each in study.document.models])
    share = share / share.sum()
    seconds = np.zeros(len(complete))
    samples = np.zeros(len(complete))
    for model in range(count):  # one after the other, so that sums are the same everywhere
        seconds += share[model] / (rate[:, model] * length[:, model])
        samples += share[model] / length[:, model]
    worst = np.full(len(complete), "ok", object)
    for name in ("skipped", "infeasible", "problem"):
        worst[(status == name).any(axis=1)] = name
    runs = (worst == "ok") | (bounded & (worst == "skipped"))
    tokens = np.where(runs, 1.0 / seconds, np.nan)
    return pd.DataFrame(
        {
            "place": np.arange(len(complete)),
            "status": worst,
            "tokens_per_s": tokens,
            "samples_per_s": tokens * samples,
            "step_s": step.max(axis=1),
            **{name: values.max(axis=1) for name, values in memory.items()},
        }
    )
