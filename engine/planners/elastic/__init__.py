"""Elastic plans: the best way to train a model under each limit of its resources, as Rubick's planner does.

Zhang et al., "Rubick: Exploiting Job Reconfigurability for Deep Learning Cluster Scheduling" (MLSys 2025), and its
artifact, AlibabaPAI/reconfigurable-dl-scheduler @80e8524 (Apache-2.0). The variant `artifact` of the performance model
predicts from parameters fitted to measured runs, with the artifact's formulas; `physical` uses the calibrated cost
model.
"""

from engine.planners.elastic.best import ElasticPlan, ElasticProblem, best_plan, plans_table, solve
from engine.planners.elastic.cards import ModelCard, card_names, load_card, save_card
from engine.planners.elastic.cluster import replay
from engine.planners.elastic.library_models import after_failure, model_curve, model_job, model_phases
from engine.planners.elastic.measured import Measurements, measurement_names, measurements, read_measurements
from engine.planners.elastic.over_time import Phase, Timeline, timeline
from engine.planners.elastic.resource_curve import curve
from engine.planners.elastic.splits import Split, SplitJob, split

__all__ = [
    "ElasticPlan",
    "ElasticProblem",
    "Measurements",
    "ModelCard",
    "Phase",
    "Split",
    "SplitJob",
    "Timeline",
    "after_failure",
    "best_plan",
    "card_names",
    "curve",
    "load_card",
    "measurement_names",
    "measurements",
    "model_curve",
    "model_job",
    "model_phases",
    "plans_table",
    "read_measurements",
    "replay",
    "save_card",
    "solve",
    "split",
    "timeline",
]
