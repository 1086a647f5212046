"""Models and systems of the library: the layers of a transformer by its shapes, the networks of a system as a mesh."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from engine.cost_models.contract import KernelTimes
from engine.planners.contract import PlanError, check_joined
from engine.planners.intra_operator.kernels import kernels_of
from engine.planners.intra_operator.layer_graphs import (
    LayerGraph,
    attention,
    gated_mlp,
    latent_attention,
    mlp,
    reading,
    sorted_experts,
)
from engine.planners.intra_operator.mesh import Mesh, given_system, mesh_of
from hardware import System, system_of
from hardware.loader import SystemLike
from models import Architecture, model_of, unrepresented
from models.datatypes import explain_refusal
from models.loader import ModelLike
from models.parameters import embedding_weights, norm_weights, position_weights

__all__ = ["any_mesh", "library_layers", "system_mesh"]

MOST: Final = 10**6
"""Most layers, samples or tokens of a request. Source: stated by us."""


def library_layers(
    model: ModelLike, *, batch: int, layers: int | None = None
) -> tuple[str, list[LayerGraph], tuple[str, ...]]:
    """Returns the name of a model, its layers from the first, and its simplifications in sentences.

    Args:
        model: name, path or model itself.
        batch: sequences of the model's length.
        layers: how many; all of the model where None.

    Raises:
        PlanError: a number is out of range.
        models.ModelFileError: unknown or invalid model.
    """
    found = model_of(model)
    shape = found.architecture_or_assumed()
    depth = shape.layers if layers is None else layers
    for what, value in (("batch", batch), ("layers", depth)):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
            raise PlanError(f"{what} {str(value)[:40]!r} is no whole number from 1 to {MOST:,}.")
    kinds: dict[tuple[bool, int | None], LayerGraph] = {}
    order: list[LayerGraph] = []
    for number in range(depth):
        at = min(number, shape.layers - 1) if depth > shape.layers else number
        kind = (shape.expert_layers[at], shape.windows[at])
        if kind not in kinds:
            kinds[kind] = _build_layer(shape, found.seq_size, batch, *kind)
        order.append(kinds[kind])
    return found.name, order, (*_note_simplifications(shape), *unrepresented(found))


def _build_layer(shape: Architecture, length: int, batch: int, mixture: bool, window: int | None) -> LayerGraph:
    latent, experts = shape.latent_attention, shape.experts if mixture else None
    sizes = {"b": batch, "s": length, "z": length, "h": shape.hidden, "a": shape.kv_heads, "d": shape.head_dim}
    if latent is None:
        ahead, lying = attention(grouped=True)
        sizes |= {"r": shape.heads // shape.kv_heads}
    else:
        ahead, lying = latent_attention(compressed_queries=latent.q_rank is not None)
        sizes |= {
            "latent_q": latent.q_rank or 1,
            "latent_kv": latent.kv_rank,
            "rope": latent.rope_head_dim,
            "wide": latent.nope_head_dim + latent.v_head_dim,
            "value": latent.v_head_dim,
        }
    beside = bool(shape.parallel_residual) and experts is None
    joined: tuple[str, ...] = ()
    if experts is None:
        rest, behind = gated_mlp() if shape.gated_mlp else mlp()
        sizes |= {"f": shape.ffn}
    else:
        rest, behind = sorted_experts(gated=shape.gated_mlp, shared=experts.shared_width > 0)
        # Experts are visited evenly: each takes b s k / E tokens.
        visits = max(batch * length * experts.top_k // experts.routed, 1)
        sizes |= {"e": experts.routed, "f": experts.ffn, "n": visits, "shared": experts.shared_width}
        joined = ("shared_down",) if experts.shared_width else ()
    contractions = (*ahead, *rest)
    name = "dense" if experts is None else "experts, shared" if experts.shared_width else "experts"
    return LayerGraph(
        name if window is None else f"{name}, windowed",
        contractions,
        (*lying, *behind),
        sizes,
        "out",
        reading(contractions, beside=beside),
        beside,
        0 if experts is None else experts.top_k,
        joined,
        window,
        embedding_weights(shape) + position_weights(shape) + norm_weights(shape),
        batch * length * shape.vocab_padded,
    )


def _note_simplifications(shape: Architecture) -> tuple[str, ...]:
    notes = ["Embedding, head and optimizer count in memory; the time of embedding and head is left out."]
    if shape.positions == "relative":
        notes.append("Relative positions, with a projection of their own in every block, are not counted.")
    if shape.sliding_window is not None:
        notes.append("Windows shorten attention where kernel rates are known; counted operations are of all scores.")
    if shape.sparse_attention is not None:
        notes.append("Attention to the tokens that an indexer chooses is planned as attention to all of them.")
    if shape.experts is not None:
        notes.append("Experts are visited evenly; a token is sent once to each device that has experts for it.")
    if shape.parallel_residual and shape.experts is not None:
        notes.append("Attention and experts, parallel in the published block, are counted one after the other.")
    return tuple(notes)


def system_mesh(
    system: SystemLike, devices: int, *, datatype: str = "bfloat16", tiers: int = 1, calibrated: bool = True
) -> Mesh:
    """Returns processors of a system as a mesh of one axis, or of two: those outside and inside its first network.

    Args:
        system: name, path or system itself.
        devices: of the mesh.
        datatype: of the matrix arithmetic.
        tiers: 1 for one axis inside the first network, 2 for a second one across such networks, over as many networks
            further out as it spans; where all devices are inside the first network, 2 is one axis too.
        calibrated: whether kernels and collectives take what the calibrated cost model says; otherwise products run at
            the matrix rate of large ones, and collectives at the bandwidths and latencies of the networks.

    Raises:
        PlanError: the system has no such datatype, or its networks join fewer processors.
        hardware.SystemFileError: unknown or invalid system.
    """
    found = system_of(system)
    if not isinstance(datatype, str) or not found.has_rate(datatype):
        raise PlanError(explain_refusal(datatype, found.offered_datatypes, found.name))
    if tiers not in (1, 2):
        raise PlanError(f"tiers {str(tiers)[:40]!r} is neither 1 nor 2.")
    engine = found.matrix_rate(datatype)
    near = found.network_spanning(1)
    document: dict[str, Any] = {
        "devices": devices,
        "matrix_rate": engine.tflops * 1e12 * engine.gflops_efficiency[0][1],
        "bandwidth": near.bandwidth_gb_per_s * 1e9 * near.efficiency,
        "alpha": near.latency_s,
        "memory": found.mem1.capacity_gib * 2.0**30,
    }
    mesh = mesh_of(document)
    if devices > near.size:
        if tiers == 1:
            raise PlanError(f"The first network of {found.name} joins {near.size:,} processors, not {mesh.devices:,}.")
        document["outer"] = _outer_axis(found, devices)
    if not calibrated:
        return mesh_of(document)
    kernels = kernels_of(found, datatype)
    inside = min(devices, near.size)
    document |= _collective_rates(kernels, inside, 1)
    if "outer" in document:
        document["outer"] = {"devices": devices // inside, **_collective_rates(kernels, devices // inside, inside)}
    named = system if isinstance(system, str) else found
    return replace(mesh_of(document), system=named, datatype=datatype)


OF_SYSTEM: Final = ("system", "devices", "datatype", "tiers")


def any_mesh(mesh: Mesh | Mapping[str, Any]) -> Mesh:
    """Returns a mesh from its document, or from a system with its devices.

    Args:
        mesh: a mesh; a document for `mesh_of`; or `system` and `devices`, optionally `datatype` and `tiers`, for
            `system_mesh`.

    Raises:
        PlanError: it is anything else, or invalid.
        hardware.SystemFileError: unknown or invalid system.
    """
    if isinstance(mesh, Mapping) and {"system", "devices"} <= set(mesh) <= set(OF_SYSTEM):
        given = {name: mesh[name] for name in ("datatype", "tiers") if name in mesh}
        return system_mesh(given_system(mesh["system"]), mesh["devices"], **given)
    return mesh_of(mesh)


def _outer_axis(system: System, devices: int) -> dict[str, Any]:
    near = system.network_spanning(1).size
    if devices % near:
        raise PlanError(f"{devices:,} processors of {system.name} are no whole networks of {near:,}.")
    check_joined(system, devices)
    far = system.network_spanning(devices)
    bandwidth = far.bandwidth_gb_per_s * 1e9 * far.efficiency
    return {"devices": devices // near, "bandwidth": bandwidth, "alpha": far.latency_s}


def _collective_rates(kernels: KernelTimes, ranks: int, stride: int) -> dict[str, float]:
    """Latency and bandwidth of the collectives of an axis: the cost model's times are straight lines in their bytes.

    An all-to-all counts half an all-gather here, so that its bandwidth is that of half the bytes.
    """
    if ranks == 1:
        return {}
    size, share = 1e9, (ranks - 1) / ranks
    none = {passes: float(kernels.collective(0.0, ranks, stride, passes=passes)) for passes in (1.0, 2.0)}
    whole = float(kernels.collective(size, ranks, stride, passes=2.0))
    started = float(kernels.exchange(0.0, ranks, stride))
    exchanged = float(kernels.exchange(size, ranks, stride))
    return {
        "bandwidth": 2.0 * share * size / (whole - none[2.0]),
        "alpha": none[2.0],
        "gather_alpha": none[1.0],
        "all_to_all_bandwidth": share / 2.0 * size / (exchanged - started),
        "all_to_all_alpha": started,
    }
