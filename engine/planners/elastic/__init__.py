"""Elastic plans: the best way to train a model under each limit of its resources, as Rubick's planner finds it.

Zhang et al., "Rubick: Exploiting Job Reconfigurability for Deep Learning Cluster Scheduling" (MLSys 2025), and its
artifact, AlibabaPAI/reconfigurable-dl-scheduler @80e8524 (Apache-2.0). The variant `artifact` of the performance model
gives the artifact's figures, `physical` those of the calibrated cost model.
"""

from engine.planners.elastic.best import ElasticPlan, ElasticProblem, best_plan, plans_table, solve
from engine.planners.elastic.cards import ModelCard, card_names, load_card, save_card

__all__ = [
    "ElasticPlan",
    "ElasticProblem",
    "ModelCard",
    "best_plan",
    "card_names",
    "load_card",
    "plans_table",
    "save_card",
    "solve",
]
