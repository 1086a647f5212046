"""Likely faults in the units or the batch of a profile; the known profiles have all of them."""

from __future__ import annotations

from typing import Final

from engine.planners.layerwise.profiles.profile import LayerProfile

__all__ = ["suspicions"]

MILLION: Final = 1e6
"""Bytes of a megabyte as formats count it."""
SHORTEST: Final = 1e-4
"""Shortest time of one pass of all layers at a profile's batch that is believed [s]. Source: stated by us."""
LONGEST: Final = 3_600.0
"""Time of one pass of all layers at a profile's batch that is believed [s]. Source: stated by us."""


def suspicions(profile: LayerProfile, batch: float) -> tuple[str, ...]:
    """Returns sentences about times and sizes that are probably in another unit or of another batch than stated.

    Args:
        profile: times and sizes of layers, in order.
        batch: samples at which the profile is taken to be.
    """
    found = []
    sizes = [layer.activation for layer in profile.layers if layer.activation >= MILLION]
    if len(sizes) > 2 and not any(size % MILLION for size in sizes):
        found.append(
            "All large activations are whole millions of bytes: they are rounded, or MiB written as millions, 5 % too "
            "small."
        )
    whole = [size for size in sizes if size == int(size)]
    uneven = [size for size in whole if size % batch]
    if batch > 1 and len(whole) > 2 and len(uneven) > len(whole) / 2 and any(size % MILLION for size in sizes):
        found.append(
            f"Most activations do not divide by the profile's batch of {batch:g}: they are those of another batch, or "
            "in another unit than bytes."
        )
    if profile.batch is not None and profile.batch != batch:
        found.append(f"The profile says that it was taken at a batch of {profile.batch:g}, not {batch:g}.")
    if not any(layer.backward for layer in profile.layers):
        found.append("No layer has a backward pass: its time is missing, or in that of the forward pass.")
    if not any(layer.parameters for layer in profile.layers):
        found.append("No layer has parameters: all-reduces take no time.")
    if not SHORTEST <= profile.time <= LONGEST:
        found.append(
            f"All layers together take {profile.time:.3g} s at a batch of {batch:g}: are the times in the unit that "
            "the format has, milliseconds in TorchGraph text and seconds in tables?"
        )
    return tuple(found)
