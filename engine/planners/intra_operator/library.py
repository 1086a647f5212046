"""Models and systems of the library: the layers of a dense transformer by its shapes, the first tier of a system as a
mesh."""

from __future__ import annotations

from engine.planners.contract import PlanError
from engine.planners.intra_operator.layer_graphs import LayerGraph, attention, gated_mlp, mlp
from engine.planners.intra_operator.mesh import Mesh, mesh_of
from hardware import system_of
from hardware.loader import SystemLike
from models import model_of
from models.loader import ModelLike

__all__ = ["library_layers", "system_mesh"]

MOST = 10**6


def library_layers(
    model: ModelLike, *, batch: int, layers: int | None = None
) -> tuple[str, list[LayerGraph], tuple[str, ...]]:
    """Returns the name of a dense model, its layers from the first, and what was simplified, in sentences.

    Args:
        model: name, path or model itself.
        batch: sequences of the model's length.
        layers: how many; all of the model where None.

    Raises:
        PlanError: its layers are none that are counted here, or a number is none that there is.
        models.ModelFileError: there is no such model.
    """
    found = model_of(model)
    shape = found.architecture_or_assumed()
    for what, there in (
        ("latent attention", shape.latent_attention),
        ("an indexer before attention", shape.sparse_attention),
        ("experts", shape.experts),
        ("attention beside its MLP", shape.parallel_residual),
        ("relative positions", shape.positions == "relative"),
    ):
        if there:
            raise PlanError(f"{found.name} has {what}, which is not counted; take a dense model.")
    depth = shape.layers if layers is None else layers
    for what, value in (("batch", batch), ("layers", depth)):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
            raise PlanError(f"{what} {str(value)[:40]!r} is no whole number from 1 to {MOST:,}.")
    sizes = {"b": batch, "s": found.seq_size, "z": found.seq_size, "h": shape.hidden, "a": shape.kv_heads}
    sizes |= {"r": shape.heads // shape.kv_heads, "d": shape.head_dim, "f": shape.ffn}
    ahead, lying = attention(grouped=True)
    rest, behind = gated_mlp() if shape.gated_mlp else mlp()
    graph = LayerGraph("dense", (*ahead, *rest), (*lying, *behind), sizes, "out")
    notes = ["Embedding and head are left out, in time and in memory."]
    if shape.sliding_window is not None:
        notes.append("Every layer is counted as if it attended to the whole sequence; some see a window.")
    return found.name, [graph] * depth, tuple(notes)


def system_mesh(system: SystemLike, devices: int, *, datatype: str = "bfloat16") -> Mesh:
    """Returns processors of a system that its first network joins, at its matrix rate of large products.

    Args:
        system: name, path or system itself.
        devices: on the one axis.
        datatype: of the matrix arithmetic.

    Raises:
        PlanError: the system has no such datatype, or its first network joins fewer processors.
        hardware.SystemFileError: there is no such system.
    """
    found = system_of(system)
    near = found.networks[0]
    if datatype not in found.matrix:
        raise PlanError(f"{found.name} has no rate for {datatype[:40]!r}; there are {', '.join(found.matrix)}.")
    engine = found.matrix[datatype]
    mesh = mesh_of({
        "devices": devices,
        "matrix_rate": engine.tflops * 1e12 * engine.gflops_efficiency[0][1],
        "bandwidth": near.bandwidth_gb_per_s * 1e9 * near.efficiency,
        "alpha": near.latency_s,
        "memory": found.mem1.capacity_gib * 2.0**30,
    })  # fmt: skip
    if mesh.devices > near.size:
        raise PlanError(f"The first network of {found.name} joins {near.size:,} processors, not {mesh.devices:,}.")
    return mesh
