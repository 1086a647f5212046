"""Machines as data: schema, loaders, and a library of systems with the source of every number.

    >>> import hardware
    >>> hardware.load("h100_80g_nvl8").mem1.capacity_gib
    80.0
"""

from hardware.loader import SystemFileError, load, load_document, names, to_calculon, to_document
from hardware.schema import Assumption, Memory, Network, Operation, Processor, System

__all__ = [
    "Assumption",
    "Memory",
    "Network",
    "Operation",
    "Processor",
    "System",
    "SystemFileError",
    "load",
    "load_document",
    "names",
    "to_calculon",
    "to_document",
]
