"""Zheng et al., "Alpa: Automating Inter- and Intra-Operator Parallelism for Distributed Deep Learning" (OSDI 2022).

Its solver for chains of linear layers, in its own units, and the sizes of its model suites.
"""

from engine.reproductions.alpa.figures import PAPER

__all__ = ["PAPER"]
