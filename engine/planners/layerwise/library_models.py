"""Layer profiles of library models: times of every block, the embedding and the head by the calibrated cost model.

A device of such a plan is a group of processors that share every layer by tensor parallelism; sizes cover the whole
group, and rates of the cluster all its links together.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, cast

import pandas as pd

import engine
from engine import Scenario
from engine.columns import choice_label
from engine.columns.stage_layouts import canonical
from engine.executions.codes import OFFLOADS
from engine.executions.execution_names import execution_name
from engine.planners.contract import PlanError, Progress, check_joined, unheard
from engine.planners.layerwise.cluster import ClusterMachine, MachineCluster, MachineLevel, cluster_of
from engine.planners.layerwise.planner import planned
from engine.planners.layerwise.problem import LayerwiseProblem, checked
from engine.planners.layerwise.profiles.profile import LayerProfile, ProfileLayer, joined, profile_of
from engine.planners.layerwise.profiles.states import states_of
from engine.planners.layerwise.result import LayerwisePlan
from engine.planners.layerwise.strategy import BLOCK, EMBEDDING, HEAD, PREDICTION, megatron_layout
from hardware import Calibration, Network, System, system_of
from hardware.loader import SystemLike
from models import LayerPattern, Model, dimensions, edited, model_of
from models.layers import block_titles
from models.loader import ModelLike
from models.parameters import (
    embedding_weights,
    layer_weights,
    norm_weights,
    position_weights,
    prediction_parameters,
)

__all__ = [
    "ModelPlan",
    "compared",
    "evaluated",
    "execution_of",
    "library_profile",
    "plan_model",
    "scenario_of",
    "system_cluster",
]

COST_MODEL: Final = "calibrated"
CHOSEN: Final = ("tensor_par", "pipeline_par", "data_par", "microbatch_size")
"""Fields of the execution that a plan decides in addition to its stages."""
ROOM: Final = 1e9
"""Memory of a processor during the evaluation of its layers [GiB]; the planner checks whether they fit."""


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """A plan of a library model: the tensor parallel degree of its devices, and the equivalent execution, None where
    stages have different numbers of replicas; `layout` is Megatron's string for the stages."""

    plan: LayerwisePlan
    tensor_par: int
    execution: Mapping[str, Any] | None
    layout: str | None


def library_profile(
    model: ModelLike,
    system: SystemLike,
    *,
    tensor_par: int = 1,
    microbatch: int = 1,
    datatype: str = "bfloat16",
    calibration: Calibration | None = None,
) -> tuple[LayerProfile, float]:
    """Returns the profile of a model on groups of `tensor_par` processors, and the size of parameters, gradients and
    optimizer states in multiples of the parameters.

    Args:
        model: name, path or model itself.
        system: name, path or system itself.
        tensor_par: processors that share every layer, one device of the plan.
        microbatch: sequences at which it is taken.
        datatype: of the matrix arithmetic, such as "bfloat16".
        calibration: of the calibrated cost model; the library's where None.

    Raises:
        PlanError: the model cannot run so, such as a degree that its heads do not divide by.
        models.ModelFileError, hardware.SystemFileError: the documents.
    """
    model, system = model_of(model), system_of(system)
    trained, model = model, _without_predictions(model)
    wide = system.model_copy(update={"mem1": system.mem1.model_copy(update={"capacity_gib": ROOM})})
    execution = _execution_fields(tensor_par, 1, 1, microbatch, microbatch, datatype, model, system)
    table = pd.DataFrame([execution], dtype=object)
    found = engine.evaluate(model, wide, table, cost_model=COST_MODEL, calibration=calibration).iloc[0]
    if found["status"] != "ok":
        raise PlanError(f"{model.name} on {tensor_par} processors of {system.name}: {found['reason_text']}")
    operations = engine.operations(model, wide, execution, cost_model=COST_MODEL, calibration=calibration)
    shape = _shape_of(model)
    passes, local = _pass_seconds(operations), _pass_seconds(operations[operations["engine"] != "network"])
    kinds = [name for name, _ in shape.blocks]
    # Bytes per parameter as the cost model counts them, over the tensor-parallel group.
    bytes_each = float(found["weight_space"]) * tensor_par / shape.weights
    kept = float(found["act_space"]) * tensor_par / len(kinds)
    # 16-bit activations of a microbatch.
    boundary = 2.0 * shape.hidden * model.seq_size * microbatch
    # What the pass has beyond its blocks is the head's: logits, loss, and the lookup of the embedding.
    ahead = max(float(found["fw_time"]) - sum(local[kind][0] for kind in kinds), 0.0)
    back = max(float(found["bw_time"]) - sum(local[kind][1] for kind in kinds), 0.0)
    table_weights = (shape.embedding + shape.beside) * bytes_each
    # Each end holds one vocabulary matrix; tied ones are held twice in a pipeline.
    half = shape.matrix * bytes_each
    layers = [ProfileLayer(EMBEDDING, "Embedding", 0.0, 0.0, boundary, max(table_weights - half, half), 0.0)]
    for number, (kind, held_there) in enumerate(shape.blocks):
        weights = held_there * bytes_each
        name = f"Block {number} ({kind.replace('_', ', ')})"
        layers.append(ProfileLayer(f"{BLOCK} {number}", name, *passes[kind], boundary, weights, kept))
    logits = float(found["logit_space"]) * tensor_par
    if trained is not model:
        more = engine.evaluate(trained, wide, table, cost_model=COST_MODEL, calibration=calibration).iloc[0]
        architecture = trained.architecture_or_assumed()
        count = architecture.trained_prediction_layers
        # A block like the last, with its communication, and what else the pass takes longer.
        forward, backward = (
            passes[kinds[-1]][at] - local[kinds[-1]][at] + (float(more[name]) - float(found[name])) / count
            for at, name in enumerate(("fw_time", "bw_time"))
        )
        weights = bytes_each * prediction_parameters(architecture) / architecture.prediction_layers
        for number in range(count):
            name = f"Prediction layer {number} ({kinds[-1].replace('_', ', ')}, head)"
            layers.append(
                ProfileLayer(f"{PREDICTION} {number}", name, forward, backward, boundary, weights, kept + logits)
            )
    held = half + shape.norm * bytes_each
    layers.append(ProfileLayer(HEAD, "Head and loss", ahead, back, 4.0 * microbatch, held, logits))
    edges = [(a.id, b.id) for a, b in itertools.pairwise(layers)]
    states = ("weight_space", "weight_grad_space", "optimizer_space")
    # Weights, gradients and optimizer state in multiples of the weights.
    optimizer = sum(float(found[each]) for each in states) / float(found["weight_space"])
    source = f"{COST_MODEL} cost model, {model.name} on {system.name}, tensor parallel {tensor_par}"
    return profile_of(model.name, layers, edges, batch=microbatch, source=source), optimizer


def _without_predictions(model: Model) -> Model:
    """The model without layers for multi-token prediction; the same if it has none."""
    if model.architecture is None or not model.architecture.trained_prediction_layers:
        return model
    return edited(model, {"architecture.trained_prediction_layers": 0})


def system_cluster(
    system: SystemLike, processors: int, *, tensor_par: int = 1, kind: str = "", reach: int = 0
) -> MachineCluster:
    """Returns the groups of `tensor_par` processors of a system, in domains of its fastest network, at the rates of all
    networks that they use.

    Args:
        system: name, path or system itself.
        processors: of the whole cluster; a multiple of `tensor_par`.
        tensor_par: processors that share every layer, one device of the plan.
        kind: what devices are called in profiles of several kinds; empty where there is one kind only.
        reach: processors of the larger cluster that this is a part of; `processors` where it is all of it. What no
            network closer by joins counts at the rate of the network that spans them.

    Raises `PlanError` where groups do not fill the processors, and where no network joins them.
    """
    system = system_of(system)
    if tensor_par < 1 or processors < 1 or processors % tensor_par:
        raise PlanError(f"{processors} processors are not groups of {tensor_par}; the number must divide by it.")
    check_joined(system, processors)
    near = system.network_spanning(1)
    whole = max(processors, reach, near.size + 1)
    far, between = system.network_spanning(whole), system.networks_below(whole)[1:]
    domain = max(near.size // tensor_par, 1) if near is not far else processors // tensor_par
    groups = processors // tensor_par
    sizes = [min(domain, groups - at) for at in range(0, groups, domain)]
    # A device of the plan is a tensor-parallel group: t times the memory and the links of a processor.
    memory = system.mem1.capacity_gib * 2**30 * tensor_par
    inside, outside = (_link_rate(each, tensor_par) for each in (near, far))
    machines = tuple(ClusterMachine(size, kind, memory) for size in sizes)
    levels = tuple(
        MachineLevel(each.size // tensor_par, _link_rate(each, tensor_par))
        for each in between
        if domain < each.size // tensor_par < groups
    )
    name = f"{processors} x {system.name}"
    return cluster_of(MachineCluster(machines, inside, outside, outside, name, switched=True, levels=levels))


def _link_rate(network: Network, tensor_par: int) -> float:
    """Return what the links of a tensor-parallel group sustain together [bytes/s]."""
    return network.bandwidth_gb_per_s * 1e9 * network.efficiency * tensor_par


def plan_model(
    model: ModelLike,
    systems: SystemLike | Sequence[tuple[SystemLike, int]],
    processors: int | None = None,
    *,
    global_batch: int,
    tensor_par: int = 1,
    datatype: str = "bfloat16",
    calibration: Calibration | None = None,
    progress: Progress = unheard,
) -> ModelPlan:
    """Returns the best stages and replicas of a library model, over microbatches of at least one sequence for every
    replica.

    Args:
        model: name, path or model itself.
        systems: one system with `processors`, or several with the processors of each, as one cluster of several kinds.
        processors: of a single system; None where `systems` has them.
        global_batch: sequences of a step.
        tensor_par: processors that share every layer, one device of the plan.
        datatype: of the matrix arithmetic, such as "bfloat16".
        calibration: of the calibrated cost model; the library's where None.
        progress: called with the share done (0 to 1) and the current step.

    Raises:
        PlanError: nothing fits, or an argument is invalid.
        models.ModelFileError, hardware.SystemFileError: the documents.
    """
    if processors is None:
        parts = [(system_of(system), count) for system, count in cast(Sequence[tuple[SystemLike, int]], systems)]
    else:
        parts = [(system_of(cast(SystemLike, systems)), processors)]
    if not parts:
        raise PlanError("Give a system with the number of its processors, or several such pairs.")
    network = model_of(model)
    profiles = [
        (
            system.name,
            *library_profile(network, system, tensor_par=tensor_par, datatype=datatype, calibration=calibration),
        )
        for system, _ in parts
    ]
    reach = sum(count for _, count in parts)
    clusters = [
        system_cluster(system, count, tensor_par=tensor_par, kind=system.name, reach=reach) for system, count in parts
    ]
    profile = joined(profiles[0][1], [(name, found) for name, found, _ in profiles])
    optimizer = max(factor for _, _, factor in profiles)
    slowest = {field: min(getattr(each, field) for each in clusters) for field in ("inside", "all_reduce", "transfer")}
    # Parts of several systems are joined by what spans them all.
    levels = clusters[0].levels if len(clusters) == 1 else ()
    machines = tuple(machine for each in clusters for machine in each.machines)
    cluster = replace(clusters[0], machines=machines, levels=levels, **slowest)
    own, best = states_of(profile), None
    # Microbatches are doubled up to one sequence per device of the cluster.
    share, reasons = 1, list[str]()
    most = min(cluster.size, global_batch)
    while share <= most:
        progress((share.bit_length() - 1) / most.bit_length(), f"microbatch {share}")
        asked = LayerwiseProblem(profile, 1, global_batch, cluster, share, "paper", optimizer=optimizer, whole=True)
        try:
            found = planned(checked(asked), own)
            best = found if best is None or found.speedup > best.speedup else best
        except PlanError as error:
            reasons.append(str(error))
        share *= 2
    if best is None:
        raise PlanError(reasons[-1] if reasons else "The batch is too small for a microbatch.")
    return ModelPlan(best, tensor_par, _as_execution(best, tensor_par, datatype, network, parts), megatron_layout(best))


def evaluated(
    found: ModelPlan, model: ModelLike, system: SystemLike, calibration: Calibration | None = None
) -> pd.DataFrame:
    """Evaluates the plan's execution by the calibrated cost model, with the plan's stages: one row of all statistics.

    Args:
        found: a plan that `plan_model` returned for this model and system.
        model: name, path or model itself.
        system: name, path or system itself.
        calibration: of the calibrated cost model; the library's where None.

    Raises `PlanError` where the plan is no execution.
    """
    table = pd.DataFrame([dict(execution_of(found))], dtype=object)
    return engine.evaluate(model, system, table, cost_model=COST_MODEL, calibration=calibration)


def execution_of(found: ModelPlan) -> Mapping[str, Any]:
    """Returns the fields of the plan's execution, its stages as `stage_layout` among them.

    Args:
        found: a plan that `plan_model` returned.

    Raises `PlanError` where the plan is no execution.
    """
    if found.execution is None:
        raise PlanError("Stages with different numbers of replicas are no execution of the cost model.")
    return found.execution


def scenario_of(found: ModelPlan, model: ModelLike, system: SystemLike) -> Scenario:
    """Returns a scenario whose space has the plan's degrees, microbatch and stages, and every other choice of an
    execution.

    Args:
        found: a plan that `plan_model` returned for this model and system.
        model: name, path or model itself.
        system: name, path or system itself.

    Raises `PlanError` where the plan is no execution.
    """
    execution = execution_of(found)
    limits = {name: [execution[name]] for name in (*CHOSEN, "batch_size", "activation_recompute")}
    if "stage_layout" in execution:
        limits |= {name: [execution[name]] for name in ("stage_layout", "pipeline_interleaving")}
    limits |= {name: [False] for name in OFFLOADS}
    return Scenario.of(
        model,
        system,
        num_procs=int(execution["num_procs"]),
        max_batch_size=int(execution["batch_size"]),
        datatype=str(execution["datatype"]),
        cost_model=COST_MODEL,
        limits=limits,
    )


def compared(found: ModelPlan, model: ModelLike, system: SystemLike, processors: int) -> list[str]:
    """Compares the plan with the calibrated cost model's figures of it and of every execution, in sentences.

    Args:
        found: a plan that `plan_model` returned for this model and system.
        model: name, path or model itself.
        system: name, path or system itself.
        processors: of the whole cluster.
    """
    planned_rate = found.plan.figure("sample_rate").value
    told = [f"Planned: {planned_rate:.4g} samples/s on {processors} processors."]
    if found.execution is None:
        told.append("Stages with different numbers of replicas are no execution of the cost model.")
    else:
        planned = dict(found.execution)
        table = pd.DataFrame([planned, {**planned, "stage_layout": "even"}], dtype=object)
        rows = engine.evaluate(model, system, table, cost_model=COST_MODEL)
        degrees = f"{execution_name(planned)}, microbatch {planned['microbatch_size']}"
        says = [
            f"{row['sample_rate']:.4g} samples/s" if row["status"] == "ok" else str(row["reason_text"]).rstrip(".")
            for _, row in rows.iterrows()
        ]
        even = "" if says[0] == says[1] else f" With even stages: {says[1]}."
        told.append(f"Cost model, {degrees}, with these stages: {says[0]}.{even}")
    batch, datatype = found.plan.problem.global_batch, "bfloat16"
    best = engine.best(
        model, system, num_procs=processors, max_batch_size=batch, datatype=datatype, cost_model=COST_MODEL
    )
    if best:
        degrees = f"{execution_name(best)}, microbatch {best['microbatch_size']}"
        stages = "" if best["pipeline_par"] == 1 else f", {choice_label('stage_layout', best['stage_layout'])} stages"
        rate = f"{best['sample_rate']:.4g} samples/s"
        told.append(f"Best of all executions by the cost model: {rate} with {degrees}{stages}.")
    else:
        told.append("By the cost model no execution runs.")
    return told


def _as_execution(
    plan: LayerwisePlan, tensor_par: int, datatype: str, model: Model, systems: Sequence[tuple[System, int]]
) -> dict[str, Any] | None:
    replicas = {len(stage.devices) for stage in plan.stages}
    if len(replicas) > 1 or len(systems) > 1 or plan.problem.global_batch % max(replicas):
        return None
    (copies,) = replicas
    mine = plan.problem.microbatch // copies
    batch = plan.problem.global_batch
    made = _execution_fields(tensor_par, len(plan.stages), copies, mine, batch, datatype, model, systems[0][0])
    made["optimizer_sharding"] = copies > 1
    made["activation_recompute"] = "full" if any(stage.recompute for stage in plan.stages) else "none"
    layout = megatron_layout(plan)
    if layout is not None and len(plan.stages) > 1:
        made["stage_layout"] = canonical(layout)
    return made


def _execution_fields(
    tensor_par: int,
    pipeline: int,
    copies: int,
    microbatch: int,
    batch: int,
    datatype: str,
    model: Model,
    system: System,
) -> dict[str, Any]:
    """The fields of an execution without interleaving, recomputation or offloading."""
    degrees = {"tensor_par": tensor_par, "pipeline_par": pipeline, "data_par": copies}
    processors, reach, tiers = tensor_par * pipeline * copies, 1, {}
    for name, degree in (("tensor_par", tensor_par), ("data_par", copies), ("pipeline_par", pipeline)):
        reach *= degree
        tiers[f"{name}_net"] = system.tier_spanning(reach)
    sharded = tensor_par > 1
    mixture = dimensions(model).experts > 0
    return {
        "num_procs": processors,
        **degrees,
        **tiers,
        "batch_size": batch,
        "microbatch_size": microbatch,
        "datatype": datatype,
        "fused_activation": True,
        "attention_type": "multihead",
        "activation_recompute": "none",
        "pipeline_interleaving": 1,
        "optimizer_sharding": False,
        "tensor_par_comm_type": "rs_ag" if sharded else "ar",
        "tensor_par_overlap": "none",
        "seq_par_ag_redo": False,
        "data_par_overlap": copies > 1,
        "weight_offload": False,
        "activations_offload": False,
        "optimizer_offload": False,
        "training": True,
        **({"expert_par": tensor_par} if mixture and sharded else {}),
    }


def _pass_seconds(operations: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """Forward and backward pass of each kind of block [s]."""
    found: dict[str, tuple[float, float]] = {}
    for kind, ahead, back in operations[["block", "fw_time", "bw_time"]].itertuples(index=False):
        before = found.get(str(kind), (0.0, 0.0))
        found[str(kind)] = (before[0] + float(ahead), before[1] + float(back))
    return found


class _Shape(NamedTuple):
    """Weights of the parts of a model [elements]: kind, as operations name it, and weights of every block; embedding
    and head as two matrices, or one if tied; one of them; other weights of the first stage; the final norm."""

    hidden: int
    blocks: tuple[tuple[str, int], ...]
    embedding: int
    matrix: int
    beside: int
    norm: int

    @property
    def weights(self) -> float:
        """All weights [elements]."""
        return float(sum(weights for _, weights in self.blocks) + self.embedding + self.beside + self.norm)


def _shape_of(model: Model) -> _Shape:
    """Return the weights of a model's parts."""
    if model.layers is not None:
        return _pattern_shape(model.layers)
    architecture = model.architecture_or_assumed()
    blocks = tuple(
        (
            ("experts" if experts else "dense") + ("_windowed" if window is not None else ""),
            layer_weights(architecture, experts=experts),
        )
        for experts, window in zip(architecture.expert_layers, architecture.windows, strict=True)
    )
    return _Shape(
        architecture.hidden,
        blocks,
        embedding_weights(architecture),
        architecture.hidden * architecture.vocab_padded,
        position_weights(architecture),
        norm_weights(architecture),
    )


def _pattern_shape(pattern: LayerPattern) -> _Shape:
    norm, matrix = pattern.norm_width * pattern.hidden, pattern.vocab * pattern.hidden
    each = [
        (title, block.norms * norm + sum(layer.count_parameters(pattern.hidden) for layer in block.layers))
        for title, block in zip(block_titles(pattern), pattern.blocks, strict=True)
    ]
    blocks = tuple(each[run.block] for run in pattern.runs for _ in range(run.count))
    tied = 1 if pattern.tied_embeddings else 2
    return _Shape(pattern.hidden, blocks, tied * matrix, matrix, pattern.other_parameters, norm)
