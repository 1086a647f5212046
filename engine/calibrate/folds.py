"""Choice of the runs that a fit leaves out together, so that its error is measured on unseen runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.calibrate.rows import CheckedRuns
from engine.cost_models.calibrated import SIZES
from engine.executions.arrays import Floats, Ints

__all__ = ["HeldOut", "Kin", "held_out", "kin_of", "row_weights"]


MOST_FOLDS: Final = 5
"""Most folds of a cross-validation. Source: stated by us."""
FEWEST_GROUPS: Final = 3
"""Fewest models of which some are left out. Source: stated by us."""
FEWEST_CONFIGURATIONS: Final = 4
"""Fewest configurations of which some are left out. Source: stated by us."""
IN_COMMON: Final = 0.2
"""Share of the variance of errors that runs of one group have in common.

Chosen with the widths of the priors on the published runs: 19 sets of one source and accelerator, each fitted with the
library's parameters refitted without that source. Values from 0 to 1 differ by 0.1 points of the held-out error.
"""


@dataclass(frozen=True, slots=True)
class Kin:
    """Groups of accepted rows that belong together [accepted rows].

    `configuration`: equal for rows that the cost model cannot tell apart. `group`: the table's own, else by model;
    rows of one configuration are in one group, the first one's. `named`: whether the table names groups.
    """

    configuration: Ints
    group: Ints
    named: bool

    @property
    def configurations(self) -> int:
        """Return the number of different configurations."""
        return int(self.configuration.max(initial=-1)) + 1

    @property
    def groups(self) -> int:
        """Return the number of groups."""
        return int(self.group.max(initial=-1)) + 1


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Fold of every accepted row [accepted rows], -1 throughout if no rows can be held out.

    `described`: the rows that are left out together, or the reason why no rows are.
    """

    fold: Ints
    folds: int
    described: str


def kin_of(checked: CheckedRuns) -> Kin:
    """Return the configurations and groups of the accepted rows.

    Args:
        checked: runs, checked for use in a fit.
    """
    case = checked.case()
    size = int(checked.accepted.sum())
    columns = [
        np.broadcast_to(np.nan_to_num(column, nan=-1.0), size)
        for part in (case.model, case.accelerator, case.layout, case.software)
        for column in part.columns()
    ]
    same = _number_rows(np.column_stack(columns))
    given = checked.table[checked.accepted]["group"].astype(str).to_numpy(str)
    named = bool(size) and bool((given != "").all())
    if named:
        group = _number_rows(given[:, None])
    else:
        names = [name for name in SIZES if name != "seq_size"]
        group = _number_rows(np.column_stack([np.broadcast_to(getattr(case.model, name), size) for name in names]))
    first = np.unique(same, return_index=True)[1]
    return Kin(same, _number_rows(group[first[same]][:, None]), named)


def row_weights(kin: Kin) -> Floats:
    """Return the weight of each row [rows]: repeated runs of a configuration count as one, runs of a group less than
    their number.

    n configurations of a group count as n / (1 + (n - 1) c) independent ones, which average their errors as well,
    where c is the share that they have in common (Kish's effective sample size of a cluster).

    Args:
        kin: configurations and groups of the accepted rows.
    """
    # Repeated runs of a configuration share the weight of one.
    weight = 1.0 / np.bincount(kin.configuration)[kin.configuration]
    size = np.bincount(kin.group, weights=weight)[kin.group]
    # n / (1 + (n - 1) c): Kish 1965, design effect of a cluster.
    found: Floats = weight / (1.0 + (size - 1.0) * IN_COMMON)
    return found


def held_out(kin: Kin) -> HeldOut:
    """Returns the whole groups of the rows, spread over up to five folds of about equal size.

    Where there are too few groups, different configurations are left out instead, which says less: another model may
    be further off.

    Args:
        kin: configurations and groups of the accepted rows.
    """
    many, groups = kin.configurations, kin.groups
    models = "1 model" if groups == 1 else f"{groups} models"
    if groups >= FEWEST_GROUPS:
        folds = min(MOST_FOLDS, groups)
        what = "groups named by the table" if kin.named else "models"
        return HeldOut(_assign_folds(kin.group, folds), folds, f"{groups} {what}, in {folds} parts")
    if many >= FEWEST_CONFIGURATIONS:
        folds = min(MOST_FOLDS, many)
        description = f"{many} configurations of {models}, in {folds} parts; another model may be further off"
        return HeldOut(_assign_folds(kin.configuration, folds), folds, description)
    few = "1 configuration" if many == 1 else f"{many} configurations"
    return HeldOut(
        np.full(len(kin.group), -1, np.int64),
        0,
        f"{few} of {models} {'is' if many == 1 else 'are'} too few to leave any out; it takes {FEWEST_CONFIGURATIONS} "
        f"configurations or {FEWEST_GROUPS} models",
    )


def _number_rows(rows: npt.NDArray[np.generic]) -> Ints:
    found: Ints = np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return found


def _assign_folds(group: Ints, folds: int) -> Ints:
    """Fold of every row: whole groups, largest first, each to the fold with the fewest rows."""
    sizes = np.bincount(group)
    filled, fold = np.zeros(folds, np.int64), np.zeros(len(sizes), np.int64)
    for member in np.argsort(-sizes, kind="stable"):
        fold[member] = int(np.argmin(filled))
        filled[fold[member]] += sizes[member]
    return fold[group]
