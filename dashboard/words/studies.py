"""Co-design studies in words."""

from __future__ import annotations

from dashboard.words.numbers import counted, plain
from dashboard.words.scenarios import system_name
from engine.codesign import QUANTITIES, BindingReport, Results, Study

__all__ = ["binding_sentences", "refused_words", "told_of"]


def told_of(study: Study) -> str:
    """Returns a study in few words: "co-design study · 54 points · 3 models on H100 80 GB"."""
    models = [model.title or model.name for model in study.models]
    systems = [system_name(system) for system in study.systems]
    of = models[0] if len(models) == 1 else counted(len(models), "model")
    on = systems[0] if len(systems) == 1 else counted(len(systems), "system")
    return f"co-design study · {counted(study.points, 'point')} · {of} on {on}"


def refused_words(found: Results, report: BindingReport) -> str:
    """Returns how many designs constraints refuse: "96 refused: power 80, price 40"; empty where they refuse none.

    Args:
        found: the points of the study.
        report: about its constraints.
    """
    if not report.refused:
        return ""
    labels = [QUANTITIES[each.quantity].label.lower() for each in found.study.document.constraints]
    # Where two constraints bound one quantity, each is said whole.
    words = [
        text if labels.count(label) > 1 else label
        for label, text in zip(labels, report.table["constraint"], strict=True)
    ]
    counts = sorted(zip(report.table["refuses"], words, strict=True), key=lambda each: -each[0])
    return f"{report.refused:,} refused: {', '.join(f'{word} {count:,}' for count, word in counts if count)}"


def binding_sentences(report: BindingReport) -> list[str]:
    """Returns which constraints bind, as sentences.

    Args:
        report: about the constraints of a study.
    """
    one = QUANTITIES[report.objective]

    def reached(value: float, gain: float, design: int | None) -> str:
        better = "" if gain != gain else f" ({100 * gain:+,.3g} %)".replace("-", "\N{MINUS SIGN}")
        return f"{one.label.lower()} {plain(value, 4)} {one.unit}{better} with design {design:,}".replace("  ", " ")

    if not report.smallest_set:
        return ["No constraint binds: without all of them the best design is the same."]
    whole = report.smallest_set_value, report.smallest_set_gain, report.smallest_set_design
    words = " and ".join(report.smallest_set_words)
    found = [f"Smallest binding set: {words}. Without it: {reached(*whole)}."]
    if len(report.smallest_set) > 1:
        found.append("No smaller set gives a better design.")
    free = report.without_all, report.without_all_gain, report.without_all_design
    if free != whole:
        found.append(f"Without any constraint: {reached(*free)}.")
    return found
