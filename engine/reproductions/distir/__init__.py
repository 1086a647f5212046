"""Santhanam et al., "DistIR: An Intermediate Representation for Optimizing Distributed Neural Networks".

EuroMLSys 2021: figures 3 and 4, the measured steps of its notebook, and GPT-2 inference as far as it is described. The
simulator itself is `engine.simulate.distir`.
"""

from engine.reproductions.distir.figures import PAPER

__all__ = ["PAPER"]
