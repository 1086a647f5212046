"""Common names of the networks of a system, tier by tier."""

from __future__ import annotations

from typing import Final

from hardware.schema import System

__all__ = ["network_names", "network_words"]

_INNER: Final = {
    "volta": "NVLink",
    "ampere": "NVLink",
    "hopper": "NVLink",
    "blackwell": "NVLink",
    "ada": "PCIe",
    "cdna": "Infinity Fabric",
    "tpu": "ICI",
    "trainium": "NeuronLink",
    "gaudi": "Gaudi links",
}
"""Beginning of a generation's name -> the network within a node, an NVLink domain or a torus."""
_NVIDIA: Final = ("volta", "ampere", "hopper", "blackwell", "ada")


def network_names(system: System) -> tuple[str, ...]:
    """Returns the name of each network of a system, innermost first: "NVLink", "InfiniBand".

    A network with a name of its own has that, with its number where another one inside has the same. Of the others the
    innermost is named after what the accelerator's maker builds; the next one links nodes; any network beyond is its
    "spine". Systems with an unknown accelerator have an "inner network" and an "outer network", and in between
    "network 2" and so on, counted from the innermost.

    Args:
        system: whose networks are meant.
    """
    found: list[str] = []
    for number, (network, usual) in enumerate(zip(system.networks, _usual_names(system), strict=True), start=1):
        name = network.name or usual
        found.append(f"{name} {number}" if name in found else name)
    return tuple(found)


def _usual_names(system: System) -> list[str]:
    names = [f"network {tier + 1}" for tier in range(system.tiers)]
    names[0] = "inner network"
    if len(names) > 1:
        names[-1] = "outer network"
    if system.accelerator is None:
        return names
    generation = system.accelerator.generation
    inner = next((name for begin, name in _INNER.items() if generation.startswith(begin)), "")
    if inner:
        names[0] = "PCIe" if "PCIe" in system.accelerator.name else inner
    if inner and len(names) > 1:
        names[1] = "InfiniBand" if generation in _NVIDIA else "scale-out network"
        # Tier 3 is the spine, and what networks have beyond it is numbered.
        names[2:] = ["spine", *(f"spine {tier}" for tier in range(2, len(names) - 1))][: len(names) - 2]
    return names


def network_words(system: System) -> tuple[str, ...]:
    """Returns the name of each network of a system within a sentence: "NVLink", "the outer network".

    Args:
        system: whose networks are meant.
    """
    return tuple(name if name[:1].isupper() else f"the {name}" for name in network_names(system))
