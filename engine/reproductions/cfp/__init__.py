"""Hu et al., "CFP: Low-overhead Profiling-based Intra-operator Parallelism Generation" (arXiv:2504.00598).

Results of its README, the plans that it runs before it decides, and plans in its text forms. The search itself is
`engine.planners.intra_operator`.
"""

from engine.reproductions.cfp.figures import PAPER

__all__ = ["PAPER"]
