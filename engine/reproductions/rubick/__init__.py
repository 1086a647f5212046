"""Zhang et al., "Rubick: Exploiting Job Reconfigurability for Deep Learning Cluster Scheduling" (MLSys 2025).

Table 2, the text of the notebooks, the sweep over resources and the scheduler of its artifact,
AlibabaPAI/reconfigurable-dl-scheduler @80e8524. The planner itself is `engine.planners.elastic`; its replays know the
scheduler as the policy `artifact` once this package is imported.
"""

from engine.planners.elastic.cluster.policies import register_policy
from engine.reproductions.rubick.figures import PAPER
from engine.reproductions.rubick.scheduler import ArtifactPolicy

__all__ = ["PAPER"]

register_policy("artifact", lambda cluster, pause: ArtifactPolicy(cluster), aliases=("morphling",))
