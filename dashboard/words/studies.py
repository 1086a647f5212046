"""Co-design studies in words."""

from __future__ import annotations

from dashboard.words.numbers import counted
from dashboard.words.scenarios import system_name
from engine.codesign import Study

__all__ = ["told_of"]


def told_of(study: Study) -> str:
    """Returns a study in few words: "co-design study · GPT-3 175B on H100 80 GB · 54 points"."""
    models = ", ".join(model.title or model.name for model in study.models)
    systems = ", ".join(system_name(system) for system in study.systems)
    return f"co-design study · {models} on {systems} · {counted(study.points, 'point')}"
