"""Fan et al., "DAPPLE: A Pipelined Data Parallel Approach for Training Large Models" (PPoPP 2021).

Plans and simulator of HPGO 0.9.2, which its authors released. The planner itself is `engine.planners.layerwise`.
"""

from engine.reproductions.dapple.figures import PAPER

__all__ = ["PAPER"]
