"""What people call the networks of a system, tier by tier."""

from __future__ import annotations

from typing import Final

from hardware.schema import System

__all__ = ["network_names"]

_INNER: Final = {
    "volta": "NVLink", "ampere": "NVLink", "hopper": "NVLink", "blackwell": "NVLink", "ada": "PCIe",
    "cdna": "Infinity Fabric", "tpu": "ICI", "trainium": "NeuronLink", "gaudi": "Gaudi links",
}  # fmt: skip
"""Beginning of a generation's name -> the network within a node, an NVLink domain or a torus."""
_NVIDIA: Final = ("volta", "ampere", "hopper", "blackwell", "ada")


def network_names(system: System) -> tuple[str, ...]:
    """Returns what each network tier of a system is called, innermost first: "NVLink", "InfiniBand".

    The innermost is the one that the accelerator's maker builds; the outermost links nodes. Tiers between them, and
    those of systems whose accelerator is not known, are "tier 1" and so on.

    Args:
        system: whose networks are meant.
    """
    names = [f"tier {tier}" for tier in range(len(system.networks))]
    if system.accelerator is None:
        return tuple(names)
    generation = system.accelerator.generation
    inner = next((name for begin, name in _INNER.items() if generation.startswith(begin)), "")
    if inner:
        names[0] = "PCIe" if "PCIe" in system.accelerator.name else inner
    if inner and len(names) > 1:
        names[-1] = "InfiniBand" if generation in _NVIDIA else "scale-out network"
    return tuple(names)
