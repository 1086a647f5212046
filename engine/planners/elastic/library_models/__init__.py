"""Models of the library under changing resources: the proven optimum at every size, the traffic of a change, and the
options after a loss of nodes. No parameters are fitted; everything is the cost model's."""

from engine.planners.elastic.library_models.curves import ModelPoint, model_curve, model_job, model_point
from engine.planners.elastic.library_models.failures import after_failure
from engine.planners.elastic.library_models.movement import Movement, movement
from engine.planners.elastic.library_models.phases import model_phases

__all__ = [
    "ModelPoint",
    "Movement",
    "after_failure",
    "model_curve",
    "model_job",
    "model_phases",
    "model_point",
    "movement",
]
