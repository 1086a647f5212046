"""Profiles of layers: times and sizes of each layer of a model, measured or computed at one batch, and its edges."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from engine.planners.contract import PlanError

__all__ = ["MOST_LAYERS", "LayerProfile", "ProfileError", "ProfileLayer", "profile_of"]

MOST_LAYERS = 20_000
"""Layers that a profile may have."""


class ProfileError(PlanError):
    """A profile that cannot be understood; the message names the line, the layer and the field."""


@dataclass(frozen=True, slots=True)
class ProfileLayer:
    """One layer at the batch of its profile.

    `forward` and `backward` are times [s], `activation` is the size of its output, `parameters` the size of its
    weights, and `kept` the bytes stored for the backward pass, None where they equal the output [bytes].
    """

    id: str
    name: str
    forward: float
    backward: float
    activation: float
    parameters: float
    kept: float | None = None

    @property
    def time(self) -> float:
        """Returns forward and backward pass [s]."""
        return self.forward + self.backward

    @property
    def stored(self) -> float:
        """Returns the bytes stored for the backward pass [bytes]."""
        return self.activation if self.kept is None else self.kept


FIELDS = (
    ("forward time", "forward"),
    ("backward time", "backward"),
    ("activation size", "activation"),
    ("parameter size", "parameters"),
    ("size kept", "stored"),
)


@dataclass(frozen=True, slots=True)
class LayerProfile:
    """The layers of a model and the edges between them, as positions in `layers`.

    `batch` is the number of samples at which it was taken, None where its file does not say; `kinds` are the same
    layers on other kinds of device, by the name of the kind.
    """

    name: str
    layers: tuple[ProfileLayer, ...]
    edges: tuple[tuple[int, int], ...]
    batch: float | None = None
    source: str = ""
    kinds: tuple[tuple[str, LayerProfile], ...] = ()

    @property
    def time(self) -> float:
        """Returns forward and backward pass of all layers at the profile's batch [s]."""
        return sum(layer.time for layer in self.layers)

    @property
    def parameters(self) -> float:
        """Returns the parameters of all layers [bytes]."""
        return sum(layer.parameters for layer in self.layers)

    def kind(self, name: str) -> LayerProfile:
        """Returns the profile on another kind of device; this one where the kind is not listed."""
        return dict(self.kinds).get(name, self)


def profile_of(
    name: str,
    layers: Iterable[ProfileLayer],
    edges: Iterable[tuple[str, str]],
    *,
    batch: float | None = None,
    source: str = "",
) -> LayerProfile:
    """Returns a checked profile without the layers that planning ignores: sources called `Input...` and sinks
    `__getitem__...`.

    Args:
        name: of the profile.
        layers: in the order of the file.
        edges: pairs of layers' ids, from the one that feeds to the one that is fed; repeated pairs count once.
        batch: the samples at which it was taken [samples].
        source: origin of its figures.

    Raises:
        ProfileError: no layers, a layer twice, an edge to nowhere or to itself, a cycle, a size or time that is
        negative
            or not a number, or no time at all.
    """
    found = _told_apart(list(layers))
    position = {layer.id: number for number, layer in enumerate(found)}
    pairs = list(dict.fromkeys(edges))
    for pair in pairs:
        for end in pair:
            if end not in position:
                raise ProfileError(f"An edge names {_shorten_text(end)}, but the profile has no such layer.")
        if pair[0] == pair[1]:
            raise ProfileError(f"{_shorten_text(pair[0])} feeds itself; edges must lead to other layers.")
    fed = {second for _, second in pairs}
    feeding = {first for first, _ in pairs}
    dropped = {
        layer.id
        for layer in found
        if (layer.name.startswith("Input") and layer.id not in fed and layer.id in feeding)
        or (layer.name.startswith("__getitem__") and layer.id not in feeding)
    }
    kept = [layer for layer in found if layer.id not in dropped]
    if not kept:
        raise ProfileError("The profile has no layers besides inputs.")
    position = {layer.id: number for number, layer in enumerate(kept)}
    inner = tuple((position[a], position[b]) for a, b in pairs if a not in dropped and b not in dropped)
    _check_acyclic(kept, inner)
    if batch is not None and not (math.isfinite(batch) and batch > 0):
        raise ProfileError(f"The profile's batch is {batch:g}; it must be a number of samples above 0.")
    made = LayerProfile(name, tuple(kept), inner, batch, source)
    if not made.time > 0:
        raise ProfileError("No layer of the profile takes any time; forward and backward times are in milliseconds.")
    if not math.isfinite(made.time) or not math.isfinite(made.parameters):
        raise ProfileError("Times or sizes of the profile add up to more than a number can hold.")
    return made


def joined(base: LayerProfile, others: Sequence[tuple[str, LayerProfile]]) -> LayerProfile:
    """Returns a profile that also has the times of its layers on other kinds of device.

    Args:
        base: profile of the first kind of device.
        others: kinds of device by name, each with a profile of the same layers taken on it.

    Raises `ProfileError` where the layers are not the same.
    """
    for kind, other in others:
        if [layer.id for layer in other.layers] != [layer.id for layer in base.layers]:
            raise ProfileError(f"The profile of {kind} has other layers than {base.name}; give both the same ones.")
    return replace(base, kinds=tuple(others))


def _told_apart(layers: list[ProfileLayer]) -> list[ProfileLayer]:
    if not layers:
        raise ProfileError("The profile has no layers.")
    if len(layers) > MOST_LAYERS:
        raise ProfileError(f"The profile has {len(layers):,} layers; at most {MOST_LAYERS:,} can be planned.")
    seen: set[str] = set()
    for layer in layers:
        if layer.id in seen:
            raise ProfileError(f"The profile has {_shorten_text(layer.id)} twice.")
        seen.add(layer.id)
        for title, field in FIELDS:
            value = getattr(layer, field)
            if not math.isfinite(value):
                raise ProfileError(f"The {title} of {_shorten_text(layer.id)} is {value}; it must be a finite number.")
            if value < 0:
                raise ProfileError(f"The {title} of {_shorten_text(layer.id)} is {value:g}; it cannot be negative.")
    return layers


def _check_acyclic(layers: list[ProfileLayer], edges: tuple[tuple[int, int], ...]) -> None:
    """Raises `ProfileError` naming layers of a cycle, if there is one."""
    after: list[list[int]] = [[] for _ in layers]
    waiting = [0] * len(layers)
    for a, b in edges:
        after[a].append(b)
        waiting[b] += 1
    ready = [number for number, count in enumerate(waiting) if not count]
    done = 0
    while ready:
        done += 1
        for b in after[ready.pop()]:
            waiting[b] -= 1
            if not waiting[b]:
                ready.append(b)
    if done < len(layers):
        stuck = [_shorten_text(layers[number].id) for number, count in enumerate(waiting) if count]
        more = f" and {len(stuck) - 4} more" if len(stuck) > 4 else ""
        raise ProfileError(f"Layers feed each other in a cycle: {', '.join(stuck[:4])}{more} wait for one another.")


def _shorten_text(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
