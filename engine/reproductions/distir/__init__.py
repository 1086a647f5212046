"""Santhanam et al., "DistIR: An Intermediate Representation for Optimizing Distributed Neural Networks".

EuroMLSys 2021: figures 3 and 4, the measured steps of its notebook, GPT-2 inference as far as it is described, and its
`simulator` with all revisions, on which the command `simulate distir` and the second view of the page Schedules stand.
"""

from engine.reproductions.distir.figures import PAPER

__all__ = ["PAPER"]
