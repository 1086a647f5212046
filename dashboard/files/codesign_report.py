"""A report of a co-design study: its fronts, budgets, constraints and prices in one HTML file that opens offline."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final

import pandas as pd

from dashboard.charts.elements.markup import facts
from dashboard.charts.elements.template import Chart
from dashboard.charts.what_if.codesign import Limit, best_of_choice, design_words, designs_scatter
from dashboard.charts.what_if.codesign_choices import parallel_choices
from dashboard.files.exports import version
from dashboard.files.report import drawn, page, whole
from dashboard.files.report_parts import Figure
from dashboard.queries.design_accuracy import MOST_TOLD, basis_of, error_told
from dashboard.queries.design_stretches import Stretches, keeps, stretch_told, words_of
from dashboard.words.numbers import counted, plain
from dashboard.words.studies import binding_sentences, refused_words
from engine.codesign import QUANTITIES, BindingReport, Constraint, Quantity, Results, Study, breakdown
from engine.codesign.answers import At, in_words

__all__ = ["DesignReportQuestion", "binding_table", "build", "titles_of", "with_errors"]

SHOWN: Final = 200
"""Rows of a table at most; the files of the page have all."""


@dataclass(frozen=True, slots=True)
class DesignReportQuestion:
    """Question of the report: objective `up` against `across`, model or mix, end of the price range. `names` has labels
    of the choices that differ between designs.

    A study that kept only its best designs has no `across`; its figures are drawn over `choice`.
    """

    up: Quantity
    across: Quantity | None
    of: str
    at: At
    names: Mapping[str, str]
    choice: str = ""
    stretches: Stretches = field(default_factory=dict)
    """Ranges of choices and figures that filter designs. The Pareto front is that of all designs."""

    def kept(self, study: Study, designs: pd.DataFrame) -> pd.DataFrame:
        """Return the designs within all selected ranges."""
        return designs[keeps(study, designs, self.stretches)].reset_index(drop=True)

    def told(self, study: Study) -> dict[str, str]:
        """Return the selected ranges in words, by choice or figure."""
        return {
            name: stretch_told(
                name,
                ends,
                self.names.get(name) or QUANTITIES[name].label,
                "" if name in self.names else QUANTITIES[name].unit,
                study,
            )
            for name, ends in self.stretches.items()
        }

    def designs(self, found: Results) -> pd.DataFrame:
        """Return all designs; with constraints, the violated ones in a column `refused`."""
        designs = found.designs(self.of, self.at)
        if not found.study.document.constraints:
            return designs
        return designs.assign(refused=found.refused_by(designs))

    def binding(self, found: Results) -> BindingReport | None:
        """Returns the binding constraints; None for a study without constraints."""
        if not found.study.document.constraints:
            return None
        return found.binding_report(self.up.name, of=self.of, at=self.at)

    def free(self, found: Results) -> str:
        """Return sentences on rates and capacities without price or power; empty if all have one."""
        return found.unpriced([one.name for one in (self.up, self.across) if one is not None])

    def front(self, found: Results) -> pd.DataFrame:
        """Return the Pareto-optimal designs, best first; only the best one without `across`."""
        if self.across is not None:
            return found.front([self.up.name, self.across.name], of=self.of, at=self.at)
        best = found.best(self.up.name, of=self.of, at=self.at)
        return found.designs(self.of, self.at).iloc[:0] if best is None else pd.DataFrame([best])

    def picture(
        self, found: Results, designs: pd.DataFrame, front: pd.DataFrame, chosen: int | None, mode: str
    ) -> Chart:
        """Draw the designs over their cost, or over `choice` without `across`.

        Args:
            found: computed points.
            designs: rows of `designs`.
            front: the Pareto-optimal ones.
            chosen: number of the design that is looked at.
            mode: the theme.
        """
        if self.stretches:
            designs = designs.assign(kept=keeps(found.study, designs, self.stretches))
        limits = _constraint_limits(found)
        if self.across is not None:
            words = design_words(designs, self.names, (self.up, self.across))
            return designs_scatter(
                designs, front["design"].tolist(), self.across, self.up, words, chosen, mode, self.stretches, limits
            )
        skipped = found.skipped(self.of, self.at)
        if self.stretches:
            skipped = skipped.assign(kept=keeps(found.study, skipped, self.stretches))
        words, bounds = (design_words(table, self.names, (self.up,)) for table in (designs, skipped))
        name = self.choice
        return best_of_choice(
            designs.assign(words=words),
            skipped.assign(words=bounds),
            (name, self.names.get(name, name)),
            self.up,
            chosen,
            mode,
            self.stretches,
            limits,
        )

    def parallel(self, found: Results, designs: pd.DataFrame, mode: str) -> Chart:
        """Draw all choices of every design with the selected ranges brushed; designs outside a range without an axis
        are left out. Arguments as for `picture`."""
        axes = {
            one.name: f"{one.label}<br>[{one.unit}]" if one.unit else one.label
            for one in (self.across, self.up)
            if one is not None
        }
        axes = {**self.names, **axes}
        beside = {name: ends for name, ends in self.stretches.items() if name not in axes}
        designs = designs[keeps(found.study, designs, beside)]
        return parallel_choices(designs, axes, self.up, mode, words_of(found.study), self.stretches)


def build(found: Results, asked: DesignReportQuestion, told: str, chosen: int | None, address: str = "") -> bytes:
    """Returns the report of a study as a UTF-8 HTML document.

    Args:
        found: computed points.
        asked: question of the report.
        told: the study in a sentence.
        chosen: number of the selected design.
        address: link to the study, printed as text.
    """
    study, up, across = found.study, asked.up, asked.across
    designs = asked.designs(found)
    front = asked.front(found)
    against = asked.names.get(asked.choice, "") if across is None else across.label.lower()
    title = "Front" if across is not None else "The best design"
    sections, data = drawn(
        [
            Figure(
                "front",
                title,
                f"{up.label.lower()} against {against}",
                lambda mode: asked.picture(found, designs, front, chosen, mode),
            ),
            Figure(
                "choices",
                "All choices",
                "every allowed design as a line",
                lambda mode: asked.parallel(found, designs, mode),
            ),
        ]
    )
    name = study.document.name or "Study"
    counts = [
        ("points", f"{len(found.rows):,} of {study.points:,}"),
        ("designs that run", f"{int((designs['status'] == 'ok').sum()):,}"),
        ("on the front", f"{len(front):,}"),
    ]
    binding = asked.binding(found)
    if binding is not None:
        counts.append(("allowed", f"{binding.allowed:,} of {binding.running:,}; {refused_words(found, binding)}"))
    columns = ["design", *asked.names, up.name, *([across.name] if across is not None else [])]
    only = "; ".join(asked.told(study).values())
    kept = f"<p>Only designs with {escape(only)} are in the first table.</p>" if only else ""
    basis = basis_of(found, front["design"].tolist(), asked.of)
    body = (
        f"<h1>{escape(name)}</h1><p>{escape(study.document.description)}</p><p>{escape(told)}</p>{facts(counts)}"
        f"<p>{escape(basis)}</p><p>{escape(asked.free(found))}</p><h2>Figures</h2>{sections}<h2>{title}</h2>{kept}"
        f"{_table_markup(with_errors(found, asked.kept(study, front)[columns], asked), asked)}"
        f"{_budget_section(found, asked, columns)}{_constraint_section(found, asked)}{_cost_section(found, chosen)}"
        f"<h2>Assumptions and versions</h2><ul>{_assumption_section(found, asked)}</ul>"
        f"{whole('study', study.to_document(), address, opens='under Edit study on the page Co-design')}"
    )
    return page(name, body, data).encode("utf-8", "replace")


def titles_of(asked: DesignReportQuestion) -> dict[str, str]:
    """Return the titles of the columns.

    Args:
        asked: question of the report.
    """
    found: dict[str, str] = {}
    for one in (asked.up, asked.across):
        if one is not None:
            found |= {
                one.name: f"{one.label} [{one.unit}]" if one.unit else one.label,
                f"{one.name} may be off": f"{one.label} may be off",
            }
    return found


def with_errors(found: Results, table: pd.DataFrame, asked: DesignReportQuestion) -> pd.DataFrame:
    """Return a table of designs with the known errors of their figures.

    Args:
        found: computed points.
        table: with a column `design`.
        asked: question of the report.
    """
    more = {}
    for one in (asked.up, asked.across):
        if one is not None and one.rests_on & {"rate", "step", "memory", "host memory"}:
            errors = [error_told(found, int(number), one, asked.of) for number in table["design"].head(MOST_TOLD)]
            if any(errors):
                more[f"{one.name} may be off"] = [*errors, *[""] * (len(table) - len(errors))]
    return table.assign(**more)


def _budget_section(found: Results, asked: DesignReportQuestion, columns: Sequence[str]) -> str:
    if asked.across is None or asked.across.better != "lower" or asked.up.better != "higher":
        return ""
    steps = found.best_per_budget(budget=asked.across.name, objective=asked.up.name, of=asked.of, at=asked.at)
    steps = steps[["budget", *columns]]
    return f"<h2>Best design per budget</h2>{_table_markup(with_errors(found, steps, asked), asked)}"


def _constraint_section(found: Results, asked: DesignReportQuestion) -> str:
    report = asked.binding(found)
    if report is None:
        return ""
    told = " ".join(binding_sentences(report))
    return f"<h2>Constraints</h2><p>{escape(told)}</p>{_table_markup(binding_table(report, asked.up), None)}"


def binding_table(report: BindingReport, up: Quantity) -> pd.DataFrame:
    """Return the table of binding constraints as shown, with titles.

    Args:
        report: about the constraints.
        up: the quantity that is to be best.
    """
    table = report.table
    return pd.DataFrame(
        {
            "Constraint": table["constraint"],
            "Slack of the best": table["slack"],
            "Slack [%]": 100 * table["slack_share"],
            "Refuses": table["refuses"],
            "Refuses alone": table["refuses_alone"],
            f"Best without it [{up.unit}]" if up.unit else "Best without it": table["without"],
            "Gain without it [%]": 100 * table["gain"],
            "Binds alone": table["binds"],
            "Best design without it": table["design"],
        }
    )


def _constraint_limits(found: Results) -> list[Limit]:
    """The bounds of the study's constraints, each in words."""
    return [
        Limit(each.quantity, value, in_words(Constraint(quantity=each.quantity, **{side: value})), side == "at_most")
        for each in found.study.document.constraints
        for side, value in (("at_least", each.at_least), ("at_most", each.at_most))
        if value is not None
    ]


def _cost_section(found: Results, chosen: int | None) -> str:
    """Return the cost of the chosen design by item, with sources of unit prices."""
    items = ""
    if chosen is not None:
        table = _table_markup(breakdown(found.study, chosen), None)
        items = f"<h2>Price and power of design {chosen}</h2><p>Low, middle and high, in USD and W.</p>{table}"
    given = found.study.document.costs
    said = given.model_dump(mode="json", exclude={"sources"}, exclude_none=True)
    lines = "".join(f"<li><b>{escape(path)}</b>: {escape(source)}</li>" for path, source in given.sources.items())
    sources = f"<h3>Sources</h3><ul>{lines}</ul>" if lines else ""
    return f"{items}<h2>Unit prices</h2><pre>{escape(json.dumps(said, indent=1))}</pre>{sources}"


def _assumption_section(found: Results, asked: DesignReportQuestion) -> str:
    study = found.study
    physics = dict.fromkeys(study.scenario(0, system, 0, 0, 0).physics for system in range(len(study.systems)))
    made = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    lines = [
        f"Each point is one proven optimum over its whole space of executions. Cost model {', '.join(physics)}.",
        f"Prices at their {asked.at} value; "
        + " ".join(f"{one.label}: {one.description}" for one in (asked.up, asked.across) if one is not None),
        *(
            ["Designs that bounds rule out were not searched; no answer depends on them."]
            if study.document.prune
            else []
        ),
        *([] if found.complete else [f"Answers cover {counted(len(found.rows), 'point')} of {study.points:,}."]),
        f"Shardscape {version()}, report of {made}; study {study.key}.",
    ]
    return "".join(f"<li>{escape(line)}</li>" for line in lines)


def _table_markup(frame: pd.DataFrame, asked: DesignReportQuestion | None) -> str:
    titles = {"design": "Design", "budget": "Budget"}
    if asked is not None:
        titles |= asked.names
        titles |= titles_of(asked)
    heads = "".join(f"<th>{escape(titles.get(str(name), str(name).replace('_', ' ')))}</th>" for name in frame.columns)
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(_cell_text(value))}</td>' for value in row)}</tr>"
        for row in frame.head(SHOWN).itertuples(index=False)
    )
    more = f'<p class="muted">The first {SHOWN:,} of {len(frame):,}.</p>' if len(frame) > SHOWN else ""
    return (
        f'<div class="wide"><table class="ss-rows"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
        f"{more}"
    )


def _cell_text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)
    if value != value:
        return "–"
    return f"{value:,}" if isinstance(value, int) else plain(value, 5)
