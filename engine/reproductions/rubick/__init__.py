"""Zhang et al., "Rubick: Exploiting Job Reconfigurability for Deep Learning Cluster Scheduling" (MLSys 2025).

Table 2, the text of the notebooks, the sweep over resources and the scheduler of its artifact,
AlibabaPAI/reconfigurable-dl-scheduler @80e8524. The planner itself is `engine.planners.elastic`. Once this package is
imported, its replays know the scheduler as the policy `artifact`, and its splits of one node as `greedy`.
"""

from engine.planners.elastic.cluster.policies import register_policy
from engine.planners.elastic.splits.ways import register_rule
from engine.reproductions.rubick.figures import PAPER
from engine.reproductions.rubick.node_scheduler import greedy_split
from engine.reproductions.rubick.scheduler import ArtifactPolicy

__all__ = ["PAPER"]

register_policy("artifact", lambda cluster, pause: ArtifactPolicy(cluster), aliases=("morphling",))
register_rule("greedy", greedy_split)
