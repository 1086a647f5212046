"""Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (MLSys 2023).

Memory and batch times of four models, predicted by the cost model `calculon`. `data/README.md` describes the values.
"""

from engine.reproductions.korthikanti.figures import PAPER

__all__ = ["PAPER"]
