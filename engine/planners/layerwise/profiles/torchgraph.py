"""Profiles in TorchGraph text, the format of PipeDream's profiler, which HPGO and DAPPLE read too.

A line of a layer is `id -- description -- forward_compute_time=<ms>, backward_compute_time=<ms>,
activation_size=<bytes>, parameter_size=<bytes>`; several tensors are written `[bytes; bytes]`. An edge is an indented
`id -- id`.
"""

from __future__ import annotations

import re

from engine.planners.layerwise.profiles.profile import LayerProfile, ProfileError, ProfileLayer, profile_of

__all__ = ["torchgraph_profile"]

BETWEEN = " -- "
FIGURE = re.compile(r"(\w+)\s*=\s*(\[[^\]]*\]|[^,\s]+)")
FIELDS = {
    "forward_compute_time": "forward time",
    "backward_compute_time": "backward time",
    "activation_size": "activation size",
    "parameter_size": "parameter size",
}
MILLI = 1e-3
"""Seconds of a millisecond, the unit of TorchGraph's text."""


def torchgraph_profile(text: str, *, name: str = "profile", batch: float | None = None) -> LayerProfile:
    """Returns the profile in a text, with any line ends, with or without a byte order mark.

    Args:
        text: content of a file.
        name: of the profile, in messages too.
        batch: samples at which it was taken; the text's own where None.

    Raises `ProfileError` naming the line at fault.
    """
    layers: list[ProfileLayer] = []
    edges: list[tuple[str, str]] = []
    for number, line in enumerate(text.lstrip("\ufeff").splitlines(), start=1):
        if not line.strip():
            continue
        parts = line.strip().split(BETWEEN)
        if line[0] in " \t":
            if len(parts) != 2:
                raise ProfileError(f"Line {number} is indented, but is no edge: it should read `layer -- layer`.")
            edges.append((parts[0].strip(), parts[1].strip()))
        else:
            layers.append(_parse_layer(parts, number))
    if not layers:
        raise ProfileError(
            "The text has no layers. A layer's line reads `node1 -- Conv2d -- forward_compute_time=1.2, "
            "backward_compute_time=2.4, activation_size=4096, parameter_size=1024`."
        )
    return profile_of(name, layers, edges, batch=batch)


def _parse_layer(parts: list[str], number: int) -> ProfileLayer:
    if len(parts) < 3:
        raise ProfileError(
            f"Line {number} is no layer: it should read `id -- description -- forward_compute_time=..., ...`; edges "
            "are indented."
        )
    found = dict(FIGURE.findall(parts[2]))
    values = []
    for field, title in FIELDS.items():
        if field not in found:
            raise ProfileError(f"Line {number}: the layer {parts[0][:60]} has no {field} ({title}).")
        values.append(_parse_figure(found[field], field, number))
    forward, backward, activation, parameters = values
    return ProfileLayer(parts[0].strip(), parts[1].strip(), forward * MILLI, backward * MILLI, activation, parameters)


def _parse_figure(text: str, field: str, number: int) -> float:
    """A figure, or the sum of several in brackets."""
    several = text.startswith("[")
    try:
        return sum(
            float(part) for part in (text[1:-1].split(";") if several else [text]) if part.strip() or not several
        )
    except ValueError:
        raise ProfileError(f"Line {number}: {field} is {text[:40]!r}, which is no number.") from None
