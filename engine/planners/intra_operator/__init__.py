"""Intra-operator planning: how the contractions inside a layer are split over a mesh of devices.

CFP ("communication-free-preserving" ParallelBlocks) and Alpa (Zheng et al., OSDI 2022): ParallelBlocks with their plan
tables, derived from labels, the arithmetic operations of the published models, what every strategy vector costs on one
axis, and the best vectors of all layers under a limit of memory.
"""

from engine.planners.intra_operator.annotations import sharding_annotations
from engine.planners.intra_operator.beside_exploration import beside_exploration, plan_degrees
from engine.planners.intra_operator.layer_costs import Vector
from engine.planners.intra_operator.library import system_mesh
from engine.planners.intra_operator.measured.overlay import FittedRates, fit_rates, overlay
from engine.planners.intra_operator.measured.points import measured_points, measured_points_of
from engine.planners.intra_operator.mesh import Axis, Mesh, mesh_of
from engine.planners.intra_operator.names import described
from engine.planners.intra_operator.parallel_blocks import BlockList, ParallelBlock, layer_blocks
from engine.planners.intra_operator.planner import IntraOperatorProblem, solve
from engine.planners.intra_operator.search import IntraOperatorPlan, search
from engine.planners.intra_operator.segments import segment_map
from engine.planners.intra_operator.steps import StepCosts, evaluate_vectors, layers_of
from models.loader import ModelLike

__all__ = [
    "Axis",
    "BlockList",
    "FittedRates",
    "IntraOperatorPlan",
    "IntraOperatorProblem",
    "Mesh",
    "ParallelBlock",
    "StepCosts",
    "Vector",
    "beside_exploration",
    "blocks",
    "described",
    "evaluate_vectors",
    "fit_rates",
    "measured_points",
    "measured_points_of",
    "mesh_of",
    "overlay",
    "plan_degrees",
    "search",
    "segment_map",
    "sharding_annotations",
    "solve",
    "system_mesh",
]


def blocks(model: ModelLike, *, batch: int = 16, layers: int = 2) -> BlockList:
    """Returns the ParallelBlocks of a model with their plan tables, each different layer once.

    Args:
        model: of the library, by name, path or itself; or registered by name, such as "gpt F".
        batch: sequences; block sizes depend on it, strategies do not.
        layers: how many.

    Raises:
        engine.planners.contract.PlanError: a number is out of range.
        models.ModelFileError: unknown or invalid model.
    """
    different = {each.name: each for each in layers_of(model, batch=batch, layers=layers)[1]}
    return BlockList(block for each in different.values() for block in layer_blocks(each))
