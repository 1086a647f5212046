"""Answers from a results folder: the best design per budget, fronts, binding constraints, the worth of a dollar.

Rows come from the parts, each point once. Prices, weights, tokens, objectives and constraints are the study's, or
any others: nothing has to be computed again for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from engine.codesign.binding import BindingReport, binding_report, slack_of
from engine.codesign.costs import Unit, bill, unpriced
from engine.codesign.errors import StudyError
from engine.codesign.quantities import MEMORY, axes_of, quantity, refuses_better, with_quantities
from engine.codesign.rates import rates_of
from engine.codesign.schema import MIX, Constraint
from engine.codesign.study import Study
from engine.executions.arrays import Flags
from engine.exploration.frontier import frontier
from engine.scenarios.scenario import Scenario
from models.documents import did_you_mean, shown

__all__ = ["At", "Results", "in_words"]

At = Literal["low", "middle", "high"]
"""End of the ranges of prices and powers that is used."""


@dataclass(frozen=True, eq=False)
class Results:
    """Computed points of a study: `rows` has one row per point, in order, with the columns of a part."""

    study: Study
    rows: pd.DataFrame

    @property
    def complete(self) -> bool:
        """Return True if every point is computed; fronts of an incomplete study cover computed points only."""
        return len(self.rows) == self.study.points

    @cached_property
    def models(self) -> tuple[str, ...]:
        """Return the valid values of `of`: the mix, and each model."""
        return (MIX, *(model.name for model in self.study.models))

    def designs(self, of: str = MIX, at: At = "middle") -> pd.DataFrame:
        """Returns one row per design whose points are all there, in order of designs: `design`, what was chosen, every
        quantity, and `status`: that of the models, the worst first.

        Args:
            of: the mix, or the name of a model.
            at: which end of the ranges of prices and powers counts.
        """
        self._check(of)
        if (of, at) not in self._asked_last:
            self._asked_last.clear()
            self._asked_last[of, at] = self._table(of, at, self._of(of))
        return self._asked_last[of, at].copy()

    def skipped(self, of: str = MIX, at: At = "middle") -> pd.DataFrame:
        """Returns the designs that were not searched, since bounds prove that they lose: columns as of `designs`, but
        every quantity that rests on a rate is the best that the bounds leave it.

        Args:
            of: the mix, or the name of a model.
            at: which end of the ranges of prices and powers counts.
        """
        table = self._table(of, at, self._of(of, bounded=True))
        return table[table["status"] == "skipped"].reset_index(drop=True)

    def answers(self, name: str) -> bool:
        """Return True if a quantity is kept, and answers about it are right although designs were skipped.

        Args:
            name: of the quantity. Raises `StudyError` for an unknown quantity.
        """
        rests_on = quantity(name).rests_on
        kept = name not in MEMORY or MEMORY[name] in self.rows
        return kept and (not self.study.document.prune or rests_on <= axes_of(self.study.document))

    def _table(self, of: str, at: At, wide: pd.DataFrame) -> pd.DataFrame:
        if at not in ("low", "middle", "high"):
            raise StudyError(f"{shown(at)} is no end of a range; it must be low, middle or high.")
        costs = self._costs
        ends = {name: costs[f"{name}_{at}"].to_numpy(np.float64) for name in ("usd", "watts", "usd_per_h")}
        table = wide.assign(
            **{name: values[wide["place"].to_numpy()] for name, values in ends.items()},
            processors=costs["processors"].to_numpy()[wide["place"].to_numpy()],
        )
        table = with_quantities(table, self.study.document.tokens)
        chosen = self.choices.iloc[table["place"].to_numpy()].reset_index(drop=True)
        return pd.concat([chosen, table.drop(columns=["place", "processors"])], axis=1)

    def unpriced(self, names: Sequence[str]) -> str:
        """Returns which rates and capacities are free in quantities, as sentences; empty where none is.

        Args:
            names: of quantities.
        """
        basics = {basic for name in names for basic in quantity(name).rests_on}
        sentences = []
        units: tuple[tuple[Unit, str], ...] = (("usd", "price"), ("watts", "power"))
        for unit, word in units:
            free = unpriced(self.study, unit) if unit in basics else []
            if free:
                them = "it" if len(free) == 1 else "them"
                sentences.append(f"No {word} given for {', '.join(free)}: the front treats {them} as free.")
        return " ".join(sentences)

    def where(self, table: pd.DataFrame, constraints: Sequence[Constraint]) -> Flags:
        """Return a mask of the designs of a table that meet all constraints; infeasible designs never do."""
        met: Flags = np.logical_and.reduce(
            [(table["status"] == "ok").to_numpy(), *(self.meets(table, each) for each in constraints)]
        )
        return met

    def meets(self, table: pd.DataFrame, constraint: Constraint) -> Flags:
        """Returns which designs of a table meet a constraint. Raises `StudyError`."""
        values = self._values(table, constraint.quantity)
        met = np.ones(len(values), bool)
        if constraint.at_least is not None:
            met &= values >= constraint.at_least
        if constraint.at_most is not None:
            met &= values <= constraint.at_most
        return met

    def refused_by(self, table: pd.DataFrame, constraints: Sequence[Constraint] | None = None) -> list[str]:
        """Return the violated constraints of every design of a table.

        They are labels of their quantities joined by commas; an empty text for allowed and for infeasible designs.

        Args:
            table: rows of `designs`.
            constraints: None for the study's.
        """
        bounds = self._asked(constraints)
        names = [quantity(each.quantity).label.lower() for each in bounds]
        runs = (table["status"] == "ok").to_numpy()
        broken = np.reshape([~self.meets(table, each) & runs for each in bounds], (len(bounds), len(table)))
        # Few sets of constraints are violated by many designs: the words of each are made once.
        sets, which = np.unique(broken.astype(bool), axis=1, return_inverse=True)
        words = [
            ", ".join(dict.fromkeys(name for name, flag in zip(names, flags, strict=True) if flag)) for flags in sets.T
        ]
        return [words[place] for place in which.ravel().tolist()]

    def front(
        self,
        objectives: Sequence[str] | None = None,
        *,
        constraints: Sequence[Constraint] | None = None,
        of: str = MIX,
        at: At = "middle",
    ) -> pd.DataFrame:
        """Returns the designs that no other one beats in all of two or three objectives, the best in the first one
        first.

        Args:
            objectives: names of quantities; None for the study's.
            constraints: that every one of them meets; None for the study's.
            of: the mix, or the name of a model.
            at: which end of the ranges of prices and powers counts.

        Raises `StudyError`, also where designs were skipped that may belong to it.
        """
        asked = tuple(self.study.document.objectives if objectives is None else objectives)
        if len(asked) not in (2, 3) or len(set(asked)) < len(asked):
            raise StudyError(f"A front is over two or three different objectives, not {len(asked)}.")
        return self._front(asked, self._asked(constraints), of, at)

    def best(
        self,
        objective: str | None = None,
        *,
        constraints: Sequence[Constraint] | None = None,
        of: str = MIX,
        at: At = "middle",
    ) -> dict[str, Any] | None:
        """Returns the best design in one objective, as a row of `designs`; the one of the lowest number where several
        are; None where no design meets the constraints. Arguments and errors as for `front`."""
        asked = self.study.document.objectives[0] if objective is None else objective
        bounds = self._asked(constraints)
        self._proven((asked,), bounds)
        table = self.designs(of, at)
        return _best_row(self, table, asked, self.where(table, bounds))

    def best_per_budget(
        self,
        budgets: Sequence[float] | None = None,
        *,
        budget: str = "usd",
        objective: str | None = None,
        constraints: Sequence[Constraint] | None = None,
        of: str = MIX,
        at: At = "middle",
    ) -> pd.DataFrame:
        """Return, for each budget, the best design that costs no more: a row of `designs` after a column `budget`.

        Budgets for which no design is enough are left out.

        Args:
            budgets: bounds of the quantity `budget`, in its unit; None takes every one from which on another design is
                best.
            budget: the bounded quantity, such as usd, watts or processors.
            objective: the quantity to optimise; None for the first of the study's.
            constraints: for every returned design; None for the study's.
            of: the mix, or the name of a model.
            at: end of the ranges of prices and powers that is used.
        """
        asked = self.study.document.objectives[0] if objective is None else objective
        if quantity(budget).better != "lower":
            raise StudyError(f"{budget} is no budget: more of it is better. Take usd, watts, processors or the like.")
        bounds = self._asked(constraints)
        if budgets is None:
            steps = self._front((asked, budget), bounds, of, at)
            return steps.iloc[::-1].reset_index(drop=True).pipe(lambda table: _with_budget(table, table[budget]))
        wrong = next((each for each in budgets if isinstance(each, bool) or not each > 0), None)
        if wrong is not None:
            raise StudyError(f"The budget {shown(wrong)} must be a number above 0.")
        self._proven((asked, budget), bounds)
        table = self.designs(of, at)
        met, costs = self.where(table, bounds), self._values(table, budget)
        found, kept = [], []
        for each in sorted(budgets):
            row = _best_row(self, table, asked, met & (costs <= each))
            if row is not None:
                found.append(row)
                kept.append(float(each))
        return _with_budget(pd.DataFrame(found, columns=table.columns), pd.Series(kept, dtype=np.float64))

    def binding(self, objective: str | None = None, **asked: Any) -> pd.DataFrame:
        """Returns the table of `binding_report`: one row per constraint."""
        return self.binding_report(objective, **asked).table

    def binding_report(
        self,
        objective: str | None = None,
        *,
        constraints: Sequence[Constraint] | None = None,
        of: str = MIX,
        at: At = "middle",
    ) -> BindingReport:
        """Returns which constraints bind: what each refuses, what lifting each and all of them is worth, and the
        smallest set whose lifting changes the best design. Arguments and errors as for `front`."""
        asked = self.study.document.objectives[0] if objective is None else objective
        bounds = list(self._asked(constraints))
        self._proven((asked,), bounds)
        table = self.designs(of, at)
        table = table[(table["status"] == "ok") & ~np.isnan(self._values(table, asked))].reset_index(drop=True)
        values = self._values(table, asked)
        slacks = [slack_of(self._values(table, each.quantity), each.at_least, each.at_most) for each in bounds]
        shape = len(bounds), len(table)
        return binding_report(
            quantity(asked),
            values,
            table["design"].to_numpy(),
            np.reshape([self.meets(table, each) for each in bounds], shape).astype(bool),
            [in_words(each) for each in bounds],
            np.reshape([one for one, _ in slacks], shape),
            np.reshape([one for _, one in slacks], shape),
            self._plainest(table, (asked,)),
        )

    def scenario(self, point: int) -> Scenario:
        """Returns the scenario of a point, to open anywhere else."""
        design, model = divmod(point, len(self.study.models))
        return self.study.scenario_at(self.study.design(design), model)

    def execution(self, point: int) -> dict[str, Any] | None:
        """Returns the best execution of a point with all its statistics; None where nothing runs or it is missing."""
        row = self.rows[self.rows["point"] == point]
        if not len(row) or row["status"].iloc[0] != "ok":
            return None
        scenario = self.scenario(point)
        number = int(row["id"].iloc[0])
        return {"id": number} | scenario.row(number)

    def otherwise(self, **changes: Any) -> Results:
        """Return the same points under other questions.

        Args:
            **changes: keys of the study's document that rows do not depend on, such as costs, tokens, objectives and
                constraints.

        Raises:
            StudyError: designs were skipped, or rows depend on a changed key.
        """
        document = self.study.to_document() | changes
        other = Study.from_document(document)
        if other.key != self.study.key:
            raise StudyError(
                f"Rows depend on {', '.join(sorted(changes))} here, so this is another study; run it in a folder of "
                "its own."
            )
        return replace(self, study=other)

    @cached_property
    def choices(self) -> pd.DataFrame:
        """Chosen values of every complete design: `design`, `system`, `datatype`, `processors`, `batch`, and one column
        per edited parameter, as the document gives its value."""
        numbers = self._complete
        at, said = self.study.positions(numbers), self.study.document
        sizes = np.array(said.sizes, np.int64)
        batches = np.array([[rule.batch(size) for rule in said.batches] for size in said.sizes], np.int64)
        columns: dict[str, Any] = {
            "design": numbers,
            "system": np.array([system.name for system in self.study.systems])[at["system"]],
            "datatype": np.array(said.datatypes)[at["datatype"]],
            "processors": sizes[at["size"]],
            "batch": batches[at["size"], at["batch"]],
        }
        for number, edit in enumerate(said.edits):
            values = np.array(edit.rows, np.float64)[at[f"edit {number}"]]
            columns |= {name: values[:, place] for place, name in enumerate(edit.names)}
        return pd.DataFrame(columns)

    @cached_property
    def _complete(self) -> npt.NDArray[np.int64]:
        """Return the designs with all points computed, ascending."""
        designs, counts = np.unique(self.rows["point"].to_numpy() // len(self.study.models), return_counts=True)
        found: npt.NDArray[np.int64] = designs[counts == len(self.study.models)]
        return found

    @cached_property
    def _costs(self) -> pd.DataFrame:
        return bill(self.study, self._complete)

    @cached_property
    def _asked_last(self) -> dict[tuple[str, At], pd.DataFrame]:
        """Table of the last call of `designs`, which several answers in a row share."""
        return {}

    def _check(self, of: str) -> None:
        """Raise `StudyError` unless a name is the mix or a model."""
        if of not in self.models:
            hint = did_you_mean(of, list(self.models)) if isinstance(of, str) else ""
            raise StudyError(f"There is no model {shown(of)} in the study{hint}; there are {', '.join(self.models)}.")

    def _of(self, of: str, *, bounded: bool = False) -> pd.DataFrame:
        """Rates of designs for the mix or a model, see `engine.codesign.rates`."""
        self._check(of)
        rows = self.rows[np.isin(self.rows["point"].to_numpy() // len(self.study.models), self._complete)]
        which = None if of == MIX else self.models.index(of) - 1
        return rates_of(self.study, rows, self._complete, which, bounded=bounded)

    def _front(self, asked: tuple[str, ...], bounds: Sequence[Constraint], of: str, at: At) -> pd.DataFrame:
        self._proven(asked, bounds)
        table = self.designs(of, at)
        table = table[self.where(table, bounds)].reset_index(drop=True)
        axes = [self._values(table, name) for name in asked]
        rank = np.empty(len(table), np.int64)
        rank[self._plainest(table, ())] = np.arange(len(table))
        kept = frontier(axes, [quantity(name).better for name in asked], rank)
        return table.iloc[kept].reset_index(drop=True)

    def _plainest(self, table: pd.DataFrame, first: Sequence[str]) -> npt.NDArray[np.intp]:
        """Positions of designs, the best first: by some quantities, then by all that the study asks about, then by
        number. So what ties in one question is the design that is better in the others, searched for or not."""
        basic = axes_of(self.study.document)
        names = [
            *first,
            *("tokens_per_s",) * ("rate" in basic),
            *(name for name in ("usd", "watts", "usd_per_h", "processors") if name in basic),
        ]
        keys = [self._values(table, name) * (-1.0 if quantity(name).better == "higher" else 1.0) for name in names]
        return np.lexsort((table["design"].to_numpy(), *reversed(keys)))

    def _asked(self, constraints: Sequence[Constraint] | None) -> Sequence[Constraint]:
        return self.study.document.constraints if constraints is None else constraints

    def _values(self, table: pd.DataFrame, name: str) -> npt.NDArray[np.float64]:
        one = quantity(name)
        if one.name not in table:
            raise StudyError(
                f"{one.name} rests on a statistic that the study does not keep; add {MEMORY[one.name]} to its "
                "statistics."
            )
        return table[one.name].to_numpy(np.float64)

    def _proven(self, asked: Sequence[str], constraints: Sequence[Constraint]) -> None:
        """Raises `StudyError` where designs were skipped that might matter to these quantities or constraints."""
        names = [*asked, *(each.quantity for each in constraints)]
        needed = {basic for name in names for basic in quantity(name).rests_on}
        if not self.study.document.prune:
            return
        known = axes_of(self.study.document)
        if more := sorted(needed - known):
            raise StudyError(
                f"Designs were skipped that lose in {', '.join(sorted(known))}, but some of them may be good in "
                f"{', '.join(more)}; run the study without prune, or with objectives that have it."
            )
        turned = next((each for each in constraints if refuses_better(each)), None)
        if turned is not None and not any(refuses_better(each) for each in self.study.document.constraints):
            raise StudyError(
                f"Designs were skipped that lose to better ones, which the constraint {in_words(turned)!r} may "
                "refuse; run the study without prune, or with this constraint."
            )


def _best_row(found: Results, table: pd.DataFrame, name: str, allowed: Flags) -> dict[str, Any] | None:
    there = table[allowed & ~np.isnan(found._values(table, name))]
    return dict(there.iloc[int(found._plainest(there, (name,))[0])]) if len(there) else None


def _with_budget(table: pd.DataFrame, budgets: pd.Series) -> pd.DataFrame:
    found = table.copy()
    found.insert(0, "budget", budgets.to_numpy(np.float64))
    return found


def in_words(constraint: Constraint) -> str:
    """Returns a constraint in words, with its unit.

    Args:
        constraint: on a quantity that there is.
    """
    one = quantity(constraint.quantity)
    parts = []
    if constraint.at_least is not None:
        parts.append(f"at least {constraint.at_least:,.6g}")
    if constraint.at_most is not None:
        parts.append(f"at most {constraint.at_most:,.6g}")
    return f"{one.label} {' and '.join(parts)} {one.unit}".strip()
