"""Intra-operator planning: how the contractions inside a layer are split over a mesh of devices.

CFP ("communication-free-preserving" ParallelBlocks) and Alpa (Zheng et al., OSDI 2022): ParallelBlocks with their plan
tables, derived from labels, the arithmetic operations of the published models, what every strategy vector costs on one
axis, and the best vectors of all layers under a limit of memory.
"""

from engine.planners.intra_operator.annotations import sharding_annotations
from engine.planners.intra_operator.beside_exploration import beside_exploration, plan_degrees
from engine.planners.intra_operator.layer_costs import Vector
from engine.planners.intra_operator.library import system_mesh
from engine.planners.intra_operator.mesh import Axis, Mesh, mesh_of
from engine.planners.intra_operator.parallel_blocks import BlockList, ParallelBlock, layer_blocks
from engine.planners.intra_operator.search import Chosen, IntraOperatorPlan, layers_of, search
from engine.planners.intra_operator.suites import suite_parameters, tflop_count
from engine.planners.intra_operator.volumes import vector_volumes
from models.loader import ModelLike

__all__ = [
    "Axis", "BlockList", "Chosen", "IntraOperatorPlan", "Mesh", "ParallelBlock", "Vector", "beside_exploration",
    "blocks", "mesh_of", "plan_degrees", "search", "sharding_annotations", "suite_parameters", "system_mesh",
    "tflop_count", "vector_volumes",
]  # fmt: skip


def blocks(model: ModelLike, *, batch: int = 16, layers: int = 2) -> BlockList:
    """Returns the ParallelBlocks of a model with their plan tables, each different layer once.

    Args:
        model: of the suites, such as "gpt F", "moe E" or "llama"; or of the library, by name, path or itself.
        batch: sequences; block sizes depend on it, strategies do not.
        layers: how many.

    Raises:
        engine.planners.contract.PlanError: a number is none that there is.
        models.ModelFileError: there is no such model.
    """
    different = {each.name: each for each in layers_of(model, batch=batch, layers=layers)[1]}
    return BlockList(block for each in different.values() for block in layer_blocks(each))
