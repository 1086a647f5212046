"""Mode `paper` against every plan of small problems, valued by the objective's definition once more."""

from __future__ import annotations

import math
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.planners.contract import PlanError
from engine.planners.layerwise.cluster import ClusterMachine, MachineCluster
from engine.planners.layerwise.placement import added, devices, empty, placements, sizes_of
from engine.planners.layerwise.planner import plan, planned, solve
from engine.planners.layerwise.problem import LayerwiseProblem
from engine.planners.layerwise.profiles.examples import example
from engine.planners.layerwise.profiles.profile import LayerProfile, ProfileLayer, joined, profile_of
from engine.planners.layerwise.profiles.states import States, states_of

Shape = list[tuple[int, int, tuple[int, ...]]]


def every_plan(states: States, cluster: MachineCluster) -> Iterator[Shape]:
    """All stages in order, each placed by any policy."""
    sizes, count = sizes_of(cluster), len(states)

    def following(start: int, taken: tuple[int, ...]) -> Iterator[Shape]:
        if start == count:
            yield []
            return
        for stop in range(start + 1, count + 1):
            if start and not states.before[start - 1, stop - 1]:
                continue
            for need in range(1, sum(sizes) - sum(taken) + 1):
                for more in placements(sizes, taken, need):
                    for rest in following(stop, added(taken, more)):
                        yield [(start, stop, devices(cluster, taken, more)), *rest]

    return following(0, empty(cluster))


def step(problem: LayerwiseProblem, states: States, shape: Shape) -> float | None:
    """The latency of a plan, None where a stage does not fit even when it recomputes."""
    cluster, count, profile = problem.cluster, problem.global_batch // problem.microbatch, problem.profile
    scale = problem.global_batch / problem.profile_batch
    passes: list[tuple[float, float, float]] = []
    for number, (start, stop, group) in enumerate(shape):
        share = scale / count / len(group)
        inside = [bin(states.past[stop - 1] & ~(states.past[start - 1] if start else 0)).count("1")]
        assert inside[0] == len(states.layers(start, stop))
        kinds = {cluster.machines[cluster.machine_of[device]].kind for device in group}
        slowest = max((profile.kind(kind) for kind in sorted(kinds)), key=lambda each: each.time)
        layers = [slowest.layers[at] for at in states.layers(start, stop)]
        forward, backward = (sum(getattr(x, way) for x in layers) * share for way in ("forward", "backward"))
        held, kept = sum(x.parameters for x in layers), sum(x.activation for x in layers) * share
        entering = float(states.out[start - 1]) / count / len(group) if start else 0.0
        behind = len(shape) - number
        flying = min(behind if problem.policy == "A" else 2 * behind - 1, count)
        room = min(cluster.machines[cluster.machine_of[device]].memory for device in group)
        if problem.optimizer * held + flying * kept > room:
            if not problem.recompute or problem.optimizer * held + flying * entering + kept > room:
                return None
            backward += forward
        if number:
            moved = cluster.move_rate(shape[number - 1][2], group) * float(states.out[start - 1]) / count
            passes.append((moved, moved, 0.0))
        passes.append((forward, backward, cluster.reduce_time(group, held)))
    pivot = len(passes) - 1
    for s in range(pivot - 1, -1, -1):
        between = sum(f + b for f, b, _ in passes[s + 1 : pivot])
        if (count - 1) * sum(passes[s][:2]) > ((count - 1) * sum(passes[pivot][:2]) + between) * (1 + 1e-9):
            pivot = s
    ends = [
        reduce + (sum(p[1] for p in passes[s : pivot + 1]) if s <= pivot else -sum(p[1] for p in passes[pivot : s + 1]))
        for s, (_, _, reduce) in enumerate(passes)
    ]
    return sum(p[0] for p in passes[: pivot + 1]) + (count - 1) * sum(passes[pivot][:2]) + max(ends)


sizes = st.sampled_from([0.0, 1.0, 3.0, 10.0, 40.0])


@st.composite
def profiles(draw: st.DrawFn) -> LayerProfile:
    """Chains of up to five layers, some with a branch, some with times on a second kind of device."""
    count = draw(st.integers(1, 5))

    def layers(times: list[tuple[float, float]], held: list[float], out: list[float]) -> list[ProfileLayer]:
        return [
            ProfileLayer(f"n{at}", f"layer {at}", f, b, a * 1e6, w * 1e6)
            for at, ((f, b), w, a) in enumerate(zip(times, held, out, strict=True))
        ]

    def listed(one: st.SearchStrategy[object]) -> list:  # type: ignore[type-arg]
        return draw(st.lists(one, min_size=count, max_size=count))

    time = st.tuples(st.sampled_from([0.001, 0.002, 0.005]), st.sampled_from([0.001, 0.003, 0.02]))
    times, held, out = listed(time), listed(sizes), listed(sizes)
    edges = [(f"n{at}", f"n{at + 1}") for at in range(count - 1)]
    if count > 3 and draw(st.booleans()):
        edges = [("n0", "n1"), ("n0", "n2"), ("n1", "n3"), ("n2", "n3"), *edges[3:]]
    found = profile_of("made", layers(times, held, out), edges, batch=4)
    return joined(found, [("slow", profile_of("slow", layers(listed(time), held, out), edges, batch=4))])


clusters = st.sampled_from([(1,), (2,), (1, 1), (2, 2), (1, 2), (1, 1, 1), (3, 1)])


@settings(max_examples=25)
@given(
    profile=profiles(),
    machines=clusters,
    slow=st.booleans(),
    memory=st.sampled_from([12e6, 40e6, 1e9]),
    batches=st.sampled_from([(1, 1), (4, 1), (8, 4), (12, 1), (7, 2)]),
    policy=st.sampled_from("AB"),
    recompute=st.booleans(),
    network=st.sampled_from([1e8, 1e9]),
)
def test_no_plan_is_better_than_the_one_found(
    profile: LayerProfile,
    machines: tuple[int, ...],
    slow: bool,
    memory: float,
    batches: tuple[int, int],
    policy: str,
    recompute: bool,
    network: float,
) -> None:
    made = tuple(
        ClusterMachine(size, "slow" if slow and not at else "", memory * (1 + at)) for at, size in enumerate(machines)
    )
    cluster = MachineCluster(made, transfer=network)
    problem = LayerwiseProblem(
        profile, 4, batches[0], cluster, batches[1], "paper", optimizer=2.0, policy=policy, recompute=recompute
    )
    own = states_of(profile)
    states = own.at(batches[0], 4)
    times = [value for shape in every_plan(states, cluster) if (value := step(problem, states, shape)) is not None]
    if not times:
        try:
            planned(problem, own)
        except PlanError:
            return
        raise AssertionError("nothing fits, but a plan was found")
    found = planned(problem, own)
    shape = [(stage.start, stage.stop, stage.devices) for stage in found.stages]
    told = found.figure("step_time").value
    assert math.isclose(told, min(times), rel_tol=1e-9)
    assert math.isclose(told, step(problem, states, shape) or 0.0, rel_tol=1e-9)
    assert {stage.recompute for stage in found.stages} <= {False, recompute}


def test_it_is_never_worse_than_the_released_plan_by_its_own_objective() -> None:
    for name, machines in (("vgg19", [4, 8]), ("bert_48", list(range(1, 17))), ("gnmt_16", [2, 4])):
        asked = LayerwiseProblem(example(name), example(name).batch or 0, 128, plan_cluster(machines))
        released = solve(asked)
        found = plan(example(name), global_batch=128, machines=machines, mode="paper")
        same = [each for each in found.candidates if each.name.endswith(released.candidates[0].name)]
        shapes = [[(s.start, s.stop, s.devices) for s in each.stages] for each in found.candidates]
        assert [(s.start, s.stop, s.devices) for s in released.stages] in shapes
        assert all(found.speedup >= (each.speedup or 0.0) for each in same)
        assert found.speedup == max(each.speedup or 0.0 for each in found.candidates)


def plan_cluster(machines: list[int]) -> MachineCluster:
    from engine.planners.layerwise.cluster import cluster_of

    return cluster_of(machines)


def test_large_clusters_are_planned_with_fewer_ways_and_say_so() -> None:
    asked = LayerwiseProblem(example("amoebanet"), 8, 64, plan_cluster(list(range(8, 41, 8))), mode="paper")
    found = solve(asked)
    assert found.notes
    assert sum(len(stage.devices) for stage in found.stages) <= 40
    assert len({device for stage in found.stages for device in stage.devices}) == sum(
        len(stage.devices) for stage in found.stages
    )
