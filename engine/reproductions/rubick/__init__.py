"""Zhang et al., "Rubick: Exploiting Job Reconfigurability for Deep Learning Cluster Scheduling" (MLSys 2025).

Table 2, the text of the notebooks and the sweep over resources of its artifact,
AlibabaPAI/reconfigurable-dl-scheduler @80e8524. The planner itself is `engine.planners.elastic`.
"""

from engine.reproductions.rubick.figures import PAPER

__all__ = ["PAPER"]
