"""Measured steps of reinforcement learning, and the prediction of each with its recorded layout.

`data/measured_steps.csv` has one run per row, with its source as repository@commit:path; figures only. `kind` is step
(time and lengths are complete), phases (no response length was published) or sync (synchronisation only).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from io import StringIO
from typing import Any, Final

import numpy as np
import pandas as pd

import hardware
import models
from engine.exploration.proven_optimum import best_of
from engine.post_training.iteration import IterationWork, RolloutSide
from engine.post_training.lengths import LengthLaw
from engine.post_training.rollout import decode_steps, slots_of
from engine.post_training.training_side import TrainingTimes, forward_pass, packed_batch, training_times
from engine.recommendation.fits import without_capacity
from engine.scenarios.scenario import Scenario
from engine.serving.assumptions import Assumptions
from engine.serving.deployments import deployments_of
from engine.serving.evaluation import subject_of
from models import Model

__all__ = ["CV", "MAX_SEQUENCES", "MeasuredStep", "fitted_rows", "measured_rows", "nearest_rows", "predict_sides"]

CV: Final = 1.0
"""Coefficient of variation of response lengths that no run states []. Source: stated by us, see the guide."""
MAX_SEQUENCES: Final = 256
"""Requests of a replica at once that engines allow. Source: `max_num_seqs` of vLLM, 256 by default."""
LEAST_ROOM: Final = 1.02
"""Least ratio of cap and mean response: implied prompts of the rows are rounded. Source: stated by us."""
MEMORY_SHARE: Final = 0.9
"""Share of memory of rollout engines whose runs state none. Source: default of vLLM."""
MODES: Final = {"colocated": "colocated", "disaggregated": "one_step_off"}
"""Modes of rows with samples of at most one step ago."""


@dataclass(frozen=True, eq=False)
class MeasuredStep:
    """A measured run with computed sides: the work of a step, rollout, training and bytes of all weights."""

    row: Mapping[str, Any]
    mode: str
    work: IterationWork
    rollout: RolloutSide
    training: TrainingTimes
    weight_bytes: float
    staleness: int

    @property
    def seconds(self) -> float:
        """Measured step [s]."""
        return float(self.row["step_s"])


@cache
def _table() -> pd.DataFrame:
    text = files(__package__).joinpath("data/measured_steps.csv").read_text(encoding="utf-8")
    return pd.read_csv(StringIO(text), dtype={"staleness": float})


def measured_rows(kind: str | None = None) -> pd.DataFrame:
    """Return the measured runs, one per row.

    Args:
        kind: step, phases or sync; all where None.
    """
    table = _table()
    return table.copy() if kind is None else table[table["kind"] == kind].reset_index(drop=True)


def fitted_rows() -> pd.DataFrame:
    """Return the runs on which the constants of NeMo-RL are fitted: with a library model, lengths and layout."""
    rows = measured_rows("step")
    known = rows["model_key"].notna() & rows["mean_prompt"].notna() & rows["train_pp"].notna()
    return rows[known & (rows["framework"] == "NeMo-RL")].reset_index(drop=True)


def predict_sides(row: Mapping[str, Any], cv: float = CV) -> MeasuredStep:
    """Return a measured run with its computed sides, in the layout that it states.

    Args:
        row: of `fitted_rows`.
        cv: coefficient of variation of the response lengths [].
    """
    prompt, size = float(row["mean_prompt"]), int(row["max_total_len"])
    mean = float(row["mean_response"])
    law = LengthLaw.lognormal(mean, max(size - prompt, LEAST_ROOM * mean), cv)
    samples = int(row["samples_per_step"])
    stale = int(row["staleness"])
    work = IterationWork(
        samples,
        round(samples / row["prompts_per_step"]),
        prompt,
        law,
        int(row["optimizer_steps"]),
        int(bool(row["old_logprob_pass"])) + int(bool(row["reference_pass"])),
    )
    model = models.load(str(row["model_key"]))
    times = _recorded_training(row, model, law)
    mode = MODES[str(row["mode"])] if stale <= 1 else "asynchronous"
    total = float(models.parameter_counts(model).total)
    return MeasuredStep(row, mode, work, _recorded_rollout(row, model, law), times, 2.0 * total, stale)


def _recorded_rollout(row: Mapping[str, Any], model: Model, law: LengthLaw) -> RolloutSide:
    share = float(row["memory_share"]) if not math.isnan(float(row["memory_share"])) else MEMORY_SHARE
    subject = subject_of(model, str(row["system"]), assumptions=Assumptions(reserve_share=1.0 - share))
    degree, prompt = int(row["rollout_tp"]), float(row["mean_prompt"])
    bits = 8 if row["precision_rollout"] == "float8" else 16
    replicas = int(row["gpus_rollout"]) // degree
    deployment = deployments_of(
        pd.DataFrame(
            [
                {
                    "tensor_par": degree,
                    "pipeline_par": 1,
                    "replicas": replicas,
                    "batch": 1,
                    "prompt": round(prompt),
                    "output": 2,
                    "weight_bits": bits,
                    "engine": "vllm",
                }
            ]
        )
    )
    slots = max(slots_of(subject, deployment, law, prompt, MAX_SEQUENCES), 1)
    return RolloutSide(decode_steps(subject, deployment, law, prompt, float(slots)), replicas, slots)


def _recorded_training(row: Mapping[str, Any], model: Model, law: LengthLaw) -> TrainingTimes:
    gpus, size = int(row["gpus_train"]), int(row["max_total_len"])
    tensor, context, expert, pipeline = (int(row[f"train_{name}"]) for name in ("tp", "cp", "ep", "pp"))
    data = gpus // (tensor * context * pipeline)
    # Mean prompts are not whole numbers: a bin has room for the longest sample.
    packed = packed_batch(
        float(row["mean_prompt"]),
        law,
        round(row["samples_per_step"] / row["optimizer_steps"]),
        max(size, math.ceil(row["mean_prompt"] + law.cap)),
    )
    limits = {
        "tensor_par": tensor,
        "pipeline_par": pipeline,
        "data_par": data,
        "context_par": context,
        "expert_par": expert,
        "expert_tensor_par": 1,
        "microbatch_size": 1,
        "optimizer_sharding": True,
        "activation_recompute": "full" if row["recompute"] == "full" else "none",
        "weight_offload": False,
        "activations_offload": False,
        "optimizer_offload": False,
        "pipeline_interleaving": 1,
        "schedule": "1f1b",
        "uneven_pipelines": True,
    }
    model, system = models.edited(model, {"seq_size": size}), without_capacity(hardware.load(str(row["system"])))
    scenario = Scenario.of(
        model,
        system,
        num_procs=gpus,
        max_batch_size=max(data, math.ceil(packed.bins / data) * data),
        datatype=str(row["precision_train"]),
        limits=limits,
    )
    found = best_of(scenario)
    if not found:
        raise ValueError(f"No execution of the space has the layout of {row['id']}.")
    return training_times(found, packed, forward_pass(model, system, found, int(row["optimizer_steps"])))


def nearest_rows(
    *, parameters: float, system: str, gpus: int, is_colocated: bool, response: float, samples: int, most: int = 3
) -> list[dict[str, Any]]:
    """Return the measured runs nearest to a question, nearest first.

    Distance adds the logarithms of the ratios of model size, GPUs, response and samples; another system or another way
    to share GPUs counts like a factor of e. Source: stated by us.

    Args:
        parameters: of the model.
        system: name in the library.
        gpus: of both sides.
        is_colocated: whether both sides share GPUs.
        response: mean [tokens].
        samples: of a step.
        most: runs to return.
    """
    rows = measured_rows("step")
    rows = rows[rows["model_key"].notna()].copy()
    sizes = {name: float(models.parameter_counts(models.load(name)).total) for name in rows["model_key"].unique()}
    logs = (
        ([sizes[str(each)] for each in rows["model_key"]], parameters),
        (rows["gpus_total"].tolist(), float(gpus)),
        (rows["mean_response"].tolist(), response),
        (rows["samples_per_step"].tolist(), float(samples)),
    )
    distance = sum((np.abs(np.log(np.asarray(own, np.float64) / asked)) for own, asked in logs), np.zeros(len(rows)))
    distance = distance + (rows["system"] != system).to_numpy(np.float64)
    distance = distance + ((rows["mode"] == "colocated") != is_colocated).to_numpy(np.float64)
    found = rows.iloc[np.argsort(distance, kind="stable")[:most]]
    names = ("framework", "version", "model", "system", "mode", "staleness", "gpus_train", "gpus_rollout")
    more = ("samples_per_step", "mean_response", "max_total_len", "step_s", "source")
    return [{name: row[name] for name in (*names, *more)} for row in found.to_dict("records")]
