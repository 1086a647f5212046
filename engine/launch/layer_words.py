"""Words of a framework for the layers of a pattern, or the first layer that it cannot run."""

from __future__ import annotations

from engine.launch.contract import LaunchError
from models import Model
from models.layers import Block, LaunchWords

__all__ = ["words_of_layers"]


def words_of_layers(model: Model, framework: str, title: str) -> list[tuple[Block, tuple[LaunchWords, ...]]]:
    """Return the different blocks of a model with the framework's words for each of their layers.

    Args:
        model: one with a pattern of layers.
        framework: name of the framework.
        title: its name in sentences.

    Raises `LaunchError` naming the first layer that the framework cannot run.
    """
    assert model.layers is not None
    found = []
    for place, block in enumerate(model.layers.blocks):
        words = tuple(each.launch_words(framework, model.layers.hidden) for each in block.layers)
        if refused := next((each.refusal for each in words if each.refusal), ""):
            number = _first_layer(model, place)
            raise LaunchError(
                f"{title} cannot run layer {number:,} of {model.title or model.name} ({block.title}): {refused}."
            )
        found.append((block, words))
    return found


def _first_layer(model: Model, place: int) -> int:
    """Return the number, from 1, of the first layer that is a block."""
    assert model.layers is not None
    before = 0
    for run in model.layers.runs:
        if run.block == place:
            break
        before += run.count
    return before + 1
