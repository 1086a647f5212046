"""Co-design studies in words."""

from __future__ import annotations

from dashboard.words.numbers import counted
from dashboard.words.scenarios import system_name
from engine.codesign import Study

__all__ = ["told_of"]


def told_of(study: Study) -> str:
    """Returns a study in few words: "co-design study · 54 points · 3 models on H100 80 GB"."""
    models = [model.title or model.name for model in study.models]
    systems = [system_name(system) for system in study.systems]
    of = models[0] if len(models) == 1 else counted(len(models), "model")
    on = systems[0] if len(systems) == 1 else counted(len(systems), "system")
    return f"co-design study · {counted(study.points, 'point')} · {of} on {on}"
