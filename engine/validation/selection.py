"""Selection of rows for errors and fits, their weights, and their grouping.

Defined here once, so that all tables and fits agree:

* headline rows: calibration split, last measurement of a configuration, all configuration fields given;
* defective rows: four torchtitan rows whose own notes say that a regression in row-wise FP8 slowed them. They are
  predicted and listed, but neither fitted nor counted in sets (only in the table of their source);
* weights: BigScience (differences of 15 % between near-identical rows), DeepSpeed ZeRO-3 and the ZeRO gist (rows not
  consistent with each other) count 0.3; vTrain's single-node rows 0.5, being many and of one machine.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from engine.validation.words import accelerator_named

__all__ = [
    "accelerator_sets",
    "defective",
    "fit_weights",
    "fold_groups",
    "headline",
    "one_machine",
    "reported",
    "sets_of",
    "sources_of",
    "two_folds",
]

Rows = npt.NDArray[np.bool_]

DEFECT = r"rowwise regression|fp8 rowwise"
NOISY = r"BigScience tr11|ZeRO gist"
NOISY_FRAMEWORK = r"Megatron-LM\+DeepSpeed"
NOISY_WEIGHT = 0.3
"""Weight in the fit of runs of DeepSpeed that the model does not describe well (BigScience, ZeRO-3 of 2021). Source:
the calibration study on 1,147 measured rows."""
SINGLE_NODE_WEIGHT = 0.5
"""Weight in the fit of the many single-node runs of one source. Source: stated by us."""


def headline(table: pd.DataFrame) -> Rows:
    """Returns the rows that errors are reported on [rows].

    Args:
        table: typed runs [rows].
    """
    found = (table["split"] == "calibration") & (table["core"] == 1) & (table["completeness"] == "full")
    return found.to_numpy(bool)


def reported(table: pd.DataFrame) -> Rows:
    """Returns the rows of any table that its errors are reported on [rows].

    Headline rows where there are any; else complete last measurements outside the `aux` split; else all rows.

    Args:
        table: typed runs [rows].
    """
    complete = (table["core"] == 1) & (table["completeness"] == "full") & (table["split"] != "aux")
    for found in (headline(table), complete.to_numpy(bool)):
        if found.any():
            return found
    return np.ones(len(table), bool)


def defective(table: pd.DataFrame) -> Rows:
    """Returns the rows whose source calls them defective [rows].

    Args:
        table: typed runs [rows].
    """
    return table["notes"].astype(str).str.contains(DEFECT, regex=True).to_numpy(bool)


def sources_of(table: pd.DataFrame) -> npt.NDArray[np.object_]:
    """Return the publisher of each run [rows]: releases, papers and data sets of one publisher are one source.

    Args:
        table: typed runs [rows].
    """
    return table["source"].astype(str).str.split(" ").str[0].to_numpy(object)


def one_machine(table: pd.DataFrame) -> Rows:
    """Returns vTrain's single-node rows [rows]: seven hundred runs of one machine, which would drown all other Ampere
    runs.

    Args:
        table: typed runs [rows].
    """
    return table["source"].astype(str).str.startswith("vTrain single").to_numpy(bool)


def sets_of(table: pd.DataFrame, sound: Rows) -> dict[str, Rows]:
    """Returns the sets that errors are summarised on: name -> rows; `sound` rows only, except in "all rows".

    Args:
        table: typed runs [rows].
        sound: which rows no source calls defective [rows].
    """
    source = table["source"].astype(str)
    single = one_machine(table)
    multi = source.str.startswith("vTrain multi").to_numpy(bool)
    published = ~(single | multi)
    moe = (table["moe_experts"] > 0).to_numpy(bool)
    return {
        "published runs": published & sound,
        "published runs, dense": published & sound & ~moe,
        "published runs, mixtures of experts": published & sound & moe,
        "published runs with the defective rows": published,
        "vTrain single node": single & sound,
        "vTrain multi node": multi & sound,
        "all rows": np.ones(len(table), bool),
    }


def accelerator_sets(table: pd.DataFrame) -> dict[str, Rows]:
    """Returns the sound published runs by the accelerator they ran on: the maker's name -> rows.

    Args:
        table: typed runs [rows].
    """
    published = sets_of(table, ~defective(table))["published runs"]
    named = {name: accelerator_named(name) for name in set(table["hardware"].astype(str))}
    makers = {
        name: found[0].accelerator.name if found and found[0].accelerator is not None else ""
        for name, found in named.items()
    }
    maker = table["hardware"].astype(str).map(makers).to_numpy(object)
    return {name: published & (maker == name) for name in sorted(set(makers.values()) - {""})}


def fit_weights(table: pd.DataFrame) -> npt.NDArray[np.float64]:
    """Returns how much each row counts in a fit [rows]; 0 for rows that are not headline rows, or defective.

    Args:
        table: typed runs [rows].
    """
    weight = np.where(headline(table) & ~defective(table), 1.0, 0.0)
    source, framework = table["source"].astype(str), table["framework"].astype(str)
    noisy = source.str.contains(NOISY, regex=True) | framework.str.contains(NOISY_FRAMEWORK, regex=True)
    weight = weight * np.where(noisy, NOISY_WEIGHT, 1.0)
    return weight * np.where(one_machine(table), SINGLE_NODE_WEIGHT, 1.0)


def fold_groups(table: pd.DataFrame) -> list[str]:
    """Returns the group of every row that must stay in one fold: the table's, or source, model and hardware [rows].

    Args:
        table: typed runs [rows].
    """
    given = table["group"].astype(str)
    made = table["source"].astype(str) + "|" + table["model"].astype(str) + "|" + table["hardware"].astype(str)
    return given.where(given != "", made).tolist()


def two_folds(groups: list[str], seed: int = 0) -> npt.NDArray[np.int64]:
    """Returns the fold 0 or 1 of every row: whole groups in random order, each to the smaller fold [rows].

    Args:
        groups: of every row [rows].
        seed: of the random order.
    """
    names, member = np.unique(np.asarray(groups, dtype=str), return_inverse=True)
    sizes = np.bincount(member)
    fold = np.zeros(len(names), np.int64)
    filled = [0, 0]
    for group in np.random.default_rng(seed).permutation(len(names)):
        smaller = int(filled[1] < filled[0])
        fold[group] = smaller
        filled[smaller] += int(sizes[group])
    return fold[member]
