"""Intra-operator planning: how the contractions inside a layer are split over a mesh of devices.

CFP ("communication-free-preserving" ParallelBlocks) and Alpa (Zheng et al., OSDI 2022): ParallelBlocks with their plan
tables, derived from labels, the arithmetic operations of the published models, what every strategy vector costs on one
axis, and the best vectors of all layers under a limit of memory.
"""

from engine.planners.intra_operator.library import system_mesh
from engine.planners.intra_operator.mesh import Mesh, mesh_of
from engine.planners.intra_operator.parallel_blocks import BlockList, ParallelBlock, layer_blocks
from engine.planners.intra_operator.search import Chosen, IntraOperatorPlan, search
from engine.planners.intra_operator.suites import suite_layers, suite_parameters, tflop_count
from engine.planners.intra_operator.volumes import vector_volumes

__all__ = [
    "BlockList", "Chosen", "IntraOperatorPlan", "Mesh", "ParallelBlock", "blocks", "mesh_of", "search",
    "suite_parameters", "system_mesh", "tflop_count", "vector_volumes",
]  # fmt: skip


def blocks(model: str, *, batch: int = 16, layers: int = 2) -> BlockList:
    """Returns the ParallelBlocks of a model of the suites with their plan tables, each different layer once.

    Args:
        model: such as "gpt F", "moe E" or "llama".
        batch: sequences; block sizes depend on it, strategies do not.
        layers: how many.

    Raises:
        engine.planners.contract.PlanError: there is no such model.
    """
    different = {each.name: each for each in suite_layers(model, batch=batch, layers=layers)}
    return BlockList(block for each in different.values() for block in layer_blocks(each))
