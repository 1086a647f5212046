"""Fit of the constants of post-training to measured steps, and their errors on runs that had no part in the fit.

`python -m engine.post_training` fits, prints the errors of models and releases left out, and writes the calibration
`post_training`. Each release has a factor, and another one on each generation of GPUs: kernels of Blackwell ripened
between the releases, kernels of Hopper changed less.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.optimize import least_squares

import hardware
from engine.executions.arrays import Floats
from engine.post_training.constants import SYNCHRONISATIONS, FrameworkTerms, PostTrainingConstants
from engine.post_training.iteration import iteration_step
from engine.post_training.measured import MeasuredStep, fitted_rows, measured_rows, predict_sides
from engine.post_training.synchronisation import GB

__all__ = [
    "FIRST",
    "FittedTerms",
    "configuration_of",
    "fit_terms",
    "library_terms",
    "measured_steps",
    "own_step_ratios",
    "post_training_calibration",
    "write_calibration",
]

FIRST: Final[Mapping[str, float]] = {
    "rollout": 1.9,
    "training": 1.2,
    "fixed": 7.0,
    "switch": 0.036,
    "broadcast": 0.013,
    "asynchronous": 1.7,
}
"""Values to which the fit is drawn where runs say little: factors, [s], [s/GB]. Source: first estimates of ours from
the same runs."""
PULL: Final = 0.3
"""Residual of a value that is a factor of e from its first estimate, in units of a residual of the logarithm of a step.
Source: stated by us."""
RELEASE_PULL: Final = 0.5
"""The same for the factor of a release, of a generation, and of a release on a generation, from 1."""
REFERENCE: Final = "hopper"
"""Generation whose common factor is 1: most runs are on it."""
ROBUST: Final = 0.1
"""Residual beyond which a run counts linearly []. Source: stated by us."""
HELPED_PROMPT: Final = 200.0
"""Prompt of the run with helping GPUs [tokens], which is not published. Source: stated by us; 1 % of its response."""
PUBLISHED: Final = "NVIDIA-NeMo/RL:docs/about/performance-summary.md"
"""Table of the measured steps, with the recipes of its releases."""
COVERED: Final = 0.9
"""Share of runs of models left out that the intervals shall hold. Source: 85 % is asked of unseen runs."""
OWN: Final = 0.10
"""Interval of a step that was scaled by a step of one's own, in the same configuration []. Source: noise between runs;
stated by us. Other configurations on the same GPUs differ from the scaled prediction by 10 % at the median."""
UNEVEN: Final = 0.405
"""Least interval of a step one step off, a factor of 1.5 []: some published runs differ by more than runs in other
modes, such as 16 GB200 that are slower than one after the other. Source: stated by us."""
ROLLOUT: Final = 0.35
"""Interval of rollouts []. Source: serving's errors and the spread of k_r between frameworks; stated by us."""


@dataclass(frozen=True)
class FittedTerms:
    """Values by name of `FIRST`, and factors by release, by generation, and by release on a generation."""

    values: Mapping[str, float]
    releases: Mapping[str, float]
    generations: Mapping[str, float] = field(default_factory=dict)
    ripened: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def software(self, release: str, generation: str) -> float:
        """Return the factor of a release on a generation; without a part in the fit, that of the other alone.

        Args:
            release: as in the table of runs, such as "v0.7.0".
            generation: of GPUs, such as "blackwell".
        """
        common = self.generations.get(generation, 1.0)
        return self.releases.get(release, 1.0) * common * self.ripened.get((release, generation), 1.0)

    def predict(self, step: MeasuredStep) -> float:
        """Return the predicted step [s].

        Args:
            step: measured, with its sides.
        """
        v = self.values
        terms = FrameworkTerms(
            v["rollout"],
            v["training"],
            v["fixed"],
            v["switch"],
            v["asynchronous"],
            self.software(*_software_of(step)),
        )
        return iteration_step(
            step.mode,
            step.work,
            step.rollout,
            step.training,
            terms,
            weight_bytes=step.weight_bytes,
            sync_s=v["broadcast"] * step.weight_bytes / GB,
            staleness=step.staleness,
        ).seconds


def _software_of(step: MeasuredStep) -> tuple[str, str]:
    """Return release and generation of a run."""
    accelerator = hardware.load(str(step.row["system"])).accelerator
    return str(step.row["version"]), "" if accelerator is None else accelerator.generation


def measured_steps() -> list[MeasuredStep]:
    """Return the runs that are fitted, with their computed sides."""
    return [predict_sides({str(key): value for key, value in row.items()}) for row in fitted_rows().to_dict("records")]


def fit_terms(steps: Sequence[MeasuredStep]) -> FittedTerms:
    """Return the terms that fit measured steps best, by the logarithm of predicted over measured.

    Args:
        steps: measured, with their sides.
    """
    names = list(FIRST)
    first = np.log([FIRST[name] for name in names])
    pairs = sorted({_software_of(each) for each in steps})
    versions = sorted({version for version, _ in pairs})
    generations = sorted({generation for _, generation in pairs} - {REFERENCE})
    ends = np.cumsum([len(names), len(versions), len(generations)])
    measured = np.log([each.seconds for each in steps])

    def terms_of(point: Floats) -> FittedTerms:
        values, releases, common, ripened = (each.tolist() for each in np.split(np.exp(point), ends))
        return FittedTerms(
            dict(zip(names, values, strict=True)),
            dict(zip(versions, releases, strict=True)),
            dict(zip(generations, common, strict=True)),
            dict(zip(pairs, ripened, strict=True)),
        )

    def residuals(point: Floats) -> Floats:
        terms = terms_of(point)
        errors = np.log([terms.predict(each) for each in steps]) - measured
        pulls = PULL * (point[: len(names)] - first)
        return np.concatenate([errors, pulls, RELEASE_PULL * point[len(names) :]])

    start = np.concatenate([first, np.zeros(len(versions) + len(generations) + len(pairs))])
    return terms_of(np.asarray(least_squares(residuals, start, loss="soft_l1", f_scale=ROBUST, diff_step=[1e-3]).x))


def library_terms(constants: PostTrainingConstants) -> FittedTerms:
    """Return the terms of NeMo-RL that a calibration holds.

    Args:
        constants: of the calibration.
    """
    values = {name: constants.value(f"nemo-rl.{name}") for name in FIRST if name != "broadcast"}
    values["broadcast"] = 1.0 / constants.value("synchronisation.broadcast.rate")
    software = {}
    for release in constants.releases("nemo-rl"):
        for generation in (REFERENCE, "blackwell"):
            software[f"v{release}.0", generation] = constants.framework("nemo-rl", release, generation).software
    return FittedTerms(values, {}, {}, software)


def left_out_ratios(
    steps: Sequence[MeasuredStep], key: Callable[[MeasuredStep], str]
) -> tuple[Floats, list[FittedTerms]]:
    """Return predicted over measured of every run, with the runs of its group left out of the fit, and the fits.

    Args:
        steps: measured, with their sides.
        key: group of a run, such as its model.
    """
    ratios = np.zeros(len(steps))
    fits = []
    groups = [key(each) for each in steps]
    for group in sorted(set(groups)):
        terms = fit_terms([each for each, own in zip(steps, groups, strict=True) if own != group])
        fits.append(terms)
        for place, own in enumerate(groups):
            if own == group:
                ratios[place] = terms.predict(steps[place]) / steps[place].seconds
    return ratios, fits


def configuration_of(step: MeasuredStep) -> str:
    """Return the configuration of a run, the same in every release: model, GPUs, mode, staleness, datatype and lengths.

    Args:
        step: measured.
    """
    names = ("model_key", "system", "gpus_total", "mode", "staleness", "precision_train", "max_total_len")
    return " ".join(str(step.row[name]) for name in names)


def own_step_ratios(steps: Sequence[MeasuredStep]) -> tuple[Floats, list[MeasuredStep]]:
    """Return predicted over measured of runs of a release left out, scaled by another run of it as one's own step, and
    the runs. Both are on one kind of GPU and share their GPUs in the same way, as the question asks.

    Args:
        steps: measured, with their sides.
    """
    ratios, found = [], []
    for release in sorted({str(each.row["version"]) for each in steps}):
        own = [each for each in steps if str(each.row["version"]) == release]
        terms = fit_terms([each for each in steps if str(each.row["version"]) != release])
        for one in own:
            for other in own:
                alike = one.row["system"] == other.row["system"] and one.row["mode"] == other.row["mode"]
                if one is not other and alike:
                    factor = one.seconds / terms.predict(one)
                    ratios.append(factor * terms.predict(other) / other.seconds)
                    found.append(other)
    return np.array(ratios), found


def _describe_errors(ratios: Floats, steps: Sequence[MeasuredStep], words: str) -> list[dict[str, Any]]:
    colocated = np.array([each.mode == "colocated" for each in steps])
    found = []
    for name, chosen in (("all runs", np.ones(len(steps), bool)), ("colocated", colocated), ("split", ~colocated)):
        errors = 100.0 * (ratios[chosen] - 1.0)
        found.append(
            {
                "rows": int(chosen.sum()),
                "described": f"{name}: step of reinforcement learning, {words}",
                "held_out": True,
                "mean_absolute_percent": round(float(np.mean(np.abs(errors))), 2),
                "median_absolute_percent": round(float(np.median(np.abs(errors))), 2),
                "bias_percent": round(float(np.median(errors)), 2),
            }
        )
    return found


def _short(version: str) -> str:
    """Return a release without its patch, such as 0.7 of v0.7.0."""
    return version.removeprefix("v").rsplit(".", 1)[0]


def _synchronisations() -> dict[str, dict[str, Any]]:
    """Return start and rate of ways to synchronise: two runs of each of verl's, and stated ones."""
    found: dict[str, dict[str, Any]] = {}
    rows = measured_rows("sync")
    sizes = {"qwen3-30B-A3B": 61.1, "qwen3-235B-A22B": 470.2}  # 2 bytes per parameter [GB]
    for method, end in (("plain", "plain"), ("buckets", "engine")):
        pair = rows[rows["id"].str.endswith(end)].sort_values("sync_s")
        weights = [sizes[each] for each in pair["model_key"]]
        times = pair["sync_s"].tolist()
        rate = (weights[1] - weights[0]) / (times[1] - times[0])
        source = "; ".join(pair["source"].unique())
        found[f"synchronisation.{method}.start"] = {
            "value": round(times[0] - weights[0] / rate, 3),
            "unit": "s",
            "kind": "fitted",
            "source": f"line through 30B on 16 + 16 and 235B on 64 + 64 H20, {source}",
        }
        found[f"synchronisation.{method}.rate"] = {
            "value": round(rate, 3),
            "unit": "GB/s",
            "kind": "fitted",
            "low": round(min(w / t for w, t in zip(weights, times, strict=True)), 3),
            "high": round(rate, 3),
            "source": f"the same line; low: without a start, {source}",
        }
    return found


def helping_rate(terms: FrameworkTerms) -> float:
    """Return the share of a replica's rate that training GPUs reach which help to generate.

    verl measured one run with and without (16 + 8 H100, asynchronous): from T_roll = (R T_0 + h (T_train + T_switch)) /
    (R + h) = T_1 follows h = R (T_0 - T_1) / (T_1 - T_train - T_switch). Switches of engines, caches computed again and
    requests that are not moved are part of it.

    Args:
        terms: of verl.
    """
    records = measured_rows("step").to_dict("records")
    by_name = {str(row["id"]): {str(name): value for name, value in row.items()} for row in records}
    alone, helped = by_name["verl-v1-35b-no-switch"], by_name["verl-v1-35b-switch"]
    side = predict_sides({**alone, "mean_prompt": HELPED_PROMPT, "reference_pass": False})
    switch_s = terms.switch_s_per_gb * side.weight_bytes / GB
    begin = terms.training * side.work.updates * side.training.update_s + terms.fixed_s + switch_s
    # Responses of both differ by 1 %, and so do the rollouts.
    after = helped["step_s"] * alone["mean_response"] / helped["mean_response"]
    ratio = (alone["step_s"] - after) / (after - begin)
    replicas, helpers = (alone[name] / alone["rollout_tp"] for name in ("gpus_rollout", "gpus_train"))
    return float(replicas * ratio / helpers)


def post_training_calibration(steps: Sequence[MeasuredStep], day: str) -> dict[str, Any]:
    """Return the document of the calibration.

    Args:
        steps: measured, with their sides.
        day: of the fit, such as 2026-11-29.
    """
    terms = fit_terms(steps)
    by_model, fits = left_out_ratios(steps, lambda each: str(each.row["model_key"]))
    colocated = np.array([each.mode == "colocated" for each in steps])
    logs = np.abs(np.log(by_model))
    parameters: dict[str, dict[str, Any]] = {}
    source = f"{len(steps)} steps of NeMo-RL 0.4 to 0.7, {PUBLISHED}; range: every model left out"
    units = {"fixed": "s", "switch": "s/GB"}

    def spread(name: str, values: Iterable[float], best: float) -> dict[str, Any]:
        ends = [*values, best]
        return {
            "value": float(f"{best:.4g}"),
            "unit": units.get(name, ""),
            "kind": "fitted",
            "low": float(f"{min(ends):.4g}") if min(ends) < best else float(f"{best:.4g}"),
            "high": float(f"{max(ends):.4g}") if max(ends) > best else float(f"{best:.4g}"),
            "source": source,
        }

    for name in ("rollout", "training", "fixed", "switch", "asynchronous"):
        parameters[f"nemo-rl.{name}"] = spread(name, (each.values[name] for each in fits), terms.values[name])
    for version, factor in terms.releases.items():
        ends = [each.releases[version] for each in fits if version in each.releases]
        parameters[f"nemo-rl.release.{_short(version)}"] = spread("release", ends, factor)
    for generation, factor in terms.generations.items():
        ends = [each.generations[generation] for each in fits if generation in each.generations]
        parameters[f"nemo-rl.generation.{generation}"] = spread("generation", ends, factor)
    for (version, generation), factor in terms.ripened.items():
        common = terms.generations.get(generation, 1.0)
        ends = [
            each.ripened[version, generation] * each.generations.get(generation, 1.0)
            for each in fits
            if (version, generation) in each.ripened
        ]
        name = f"nemo-rl.generation.{generation}.{_short(version)}"
        parameters[name] = spread("generation", ends, common * factor)
    other = measured_rows("phases")
    other = other[(other["framework"] == "verl") & (other["mode"] == "colocated") & other["model_key"].notna()]
    for name in ("rollout", "training", "switch", "asynchronous"):
        entry = dict(parameters[f"nemo-rl.{name}"])
        parameters[f"verl.{name}"] = {
            **entry,
            "kind": "stated",
            "source": "as NeMo-RL: verl publishes no step with lengths of responses",
        }
    parameters["verl.fixed"] = {
        "value": round(float(other["other_s"].median()), 2),
        "unit": "s",
        "kind": "measured",
        "low": round(float(other["other_s"].min()), 2),
        "high": round(float(other["other_s"].max()), 2),
        "source": f"rest of {len(other)} colocated steps, {'; '.join(other['source'].unique())}"[:1_900],
    }
    verl = FrameworkTerms(
        terms.values["rollout"],
        terms.values["training"],
        parameters["verl.fixed"]["value"],
        terms.values["switch"],
        terms.values["asynchronous"],
    )
    helping = {
        "value": round(helping_rate(verl), 3),
        "kind": "fitted",
        "low": 0.0,
        "high": 1.0,
        "source": "verl V1 with and without `enable_switch`, Qwen3.5 35B-A3B on 16 + 8 H100: 424.4 and 473.4 s; 1 if "
        "nothing is lost",
    }
    parameters |= {"nemo-rl.helping": {**helping, "kind": "stated"}, "verl.helping": helping}
    parameters |= _synchronisations()
    broadcast = [1.0 / each.values["broadcast"] for each in fits]
    rate = 1.0 / terms.values["broadcast"]
    parameters["synchronisation.broadcast.start"] = {
        "value": 0.0,
        "unit": "s",
        "kind": "stated",
        "source": "part of the fixed time of a step",
    }
    parameters["synchronisation.broadcast.rate"] = {**spread("rate", broadcast, rate), "unit": "GB/s"}
    parameters["synchronisation.shards.start"] = {
        "value": 1.0,
        "unit": "s",
        "kind": "stated",
        "source": "stated by us; le.qun.ch of 2025-09-17 reaches 1.3 s in all for Kimi-K2 with scheduled writes",
    }
    parameters["synchronisation.shards.rate"] = {
        "value": 7.6,
        "unit": "GB/s",
        "kind": "measured",
        "low": 6.0,
        "high": 8.0,
        "source": "NeMo-RL's refit of DeepSeek-V3, 256 to 32 H100: 70 GiB a rank in 9.25 s; rate of a GPU's port",
    }
    missing = set(SYNCHRONISATIONS) - {each.split(".")[1] for each in parameters if each.startswith("synchronisation")}
    assert not missing
    stale = np.array([each.mode == "asynchronous" for each in steps])
    modes = (
        ("colocated", colocated, 0.0),
        ("one_step_off", ~colocated & ~stale, UNEVEN),
        ("asynchronous", ~colocated, 0.0),
    )
    for name, chosen, least in modes:
        parameters[f"interval.{name}"] = {
            "value": round(max(float(np.quantile(logs[chosen], COVERED, method="higher")), least), 3),
            "kind": "fitted",
            "source": f"{COVERED:.0%} quantile of |log(predicted / measured)|, {chosen.sum()} steps, models left out"
            + (", at least a factor of 1.5, stated by us" if least else ""),
        }
    ends = [each.values["training"] / terms.values["training"] for each in fits]
    parameters["interval.training"] = {
        "value": round(float(np.max(np.abs(np.log(ends)))), 3),
        "kind": "fitted",
        "source": "largest |log| of the factor on training with one model left out, over the factor with all",
    }
    for name, value, words in (
        (
            "own",
            OWN,
            "for the measured configuration; others on the same GPUs differ by 10 % at the median; stated by us",
        ),
        ("rollout", ROLLOUT, "errors of serving and spread between frameworks; stated by us"),
    ):
        parameters[f"interval.{name}"] = {"value": value, "kind": "stated", "source": words}
    by_release, _ = left_out_ratios(steps, lambda each: str(each.row["version"]))
    by_configuration, _ = left_out_ratios(steps, configuration_of)
    return {
        "format": "shardscape-calibration/1",
        "name": "post_training",
        "title": "Steps of reinforcement learning",
        "subject": "post_training",
        "fitted_on": f"{len(steps)} steps of NeMo-RL 0.4 to 0.7 on H100 and GB200 in `engine/post_training/data`",
        "date": day,
        "errors": [
            *_describe_errors(by_configuration, steps, "every configuration left out in turn"),
            *_describe_errors(by_model, steps, "every model left out in turn"),
            *_describe_errors(by_release, steps, "every release left out in turn, its factor 1"),
            *_describe_errors(*own_step_ratios(steps), "every release left out in turn, scaled by another run of it"),
        ],
        "parameters": dict(sorted(parameters.items())),
    }


def write_calibration(path: Path, day: str) -> dict[str, Any]:
    """Fit, write the calibration and return its document.

    Args:
        path: of the file.
        day: of the fit.
    """
    document = post_training_calibration(measured_steps(), day)
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return document
