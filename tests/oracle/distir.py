"""DistIR's simulator once more, literally: a program op by op over values on devices, then one op after the other.

It exists to check the recurrence and the closed sums of `engine.reproductions.distir.simulator`, and shares nothing
with them: no stage durations, no vectors, no counts. Every replica and every horizontal shard has its own values and
its own clock.

What it does was read in DistIR (microsoft/dist-ir, MIT): the transform that distributes a multilayer perceptron, the
greedy schedule, the simulator with its barriers, and the cost per op, at the revisions 3386edc (R1) and 83d7fc3 (R2),
and as its specification gives them at 7cfa1b0 (R3).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

BYTES = 4
"""A value of 32 bits."""


@dataclass(frozen=True)
class Value:
    number: int
    device: int
    rows: int
    columns: int

    @property
    def bytes(self) -> int:
        return BYTES * self.rows * self.columns


@dataclass(frozen=True)
class Op:
    kind: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


@dataclass
class Program:
    inputs: list[Value] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    count: int = 0

    def value(self, device: int, rows: int, columns: int) -> Value:
        self.count += 1
        return Value(self.count, device, rows, columns)

    def given(self, device: int, rows: int, columns: int) -> Value:
        self.inputs.append(self.value(device, rows, columns))
        return self.inputs[-1]

    def add(self, kind: str, inputs: list[Value], *outputs: tuple[int, int, int]) -> list[Value]:
        values = [self.value(*output) for output in outputs]
        self.ops.append(Op(kind, tuple(inputs), tuple(values)))
        return values

    def same(self, kind: str, inputs: list[Value], like: Value) -> Value:
        return self.add(kind, inputs, (like.device, like.rows, like.columns))[0]

    def send(self, value: Value, device: int) -> Value:
        return self.add("Send", [value], (device, value.rows, value.columns))[0]


def schedule(stages: int, microbatches: int) -> list[dict[int, tuple[str, int]]]:
    """Per time step, what each stage does: greedy, forward and backward in turns, the lowest microbatch first."""
    ready = {k: {"f": list(range(microbatches)) if k == 0 else [], "b": []} for k in range(stages)}
    last = dict.fromkeys(range(stages), "b")
    steps = []
    while any(kinds["f"] or kinds["b"] for kinds in ready.values()):
        step = {}
        for k in range(stages):
            other = "f" if last[k] == "b" else "b"
            kind = other if ready[k][other] else last[k]
            if ready[k][kind]:
                step[k] = (kind, min(ready[k][kind]))
                ready[k][kind].remove(step[k][1])
                last[k] = kind
        for k, (kind, j) in step.items():
            if kind == "f":
                ready[k + 1 if k < stages - 1 else k]["f" if k < stages - 1 else "b"].append(j)
            elif k > 0:
                ready[k - 1]["b"].append(j)
        steps.append(step)
    return steps


def sequential(layers: int, width: int, batch: int) -> Program:
    """The multilayer perceptron on one device, before any transform."""
    p = Program()
    x, z = p.given(0, batch, width), p.given(0, batch, width)
    weights = [p.given(0, width, width) for _ in range(layers)]
    kept, y = [], x
    for w in weights:
        product = p.same("MatMul", [y, w], y)
        kept.append((y, product))
        y = p.same("Relu", [product], y)
    p.same("Loss", [y, z], y)
    dy = p.same("LossGrad", [y, z], y)
    for w, (a, product) in reversed(list(zip(weights, kept, strict=True))):
        da = p.same("ReluGrad", [product, dy], product)
        dy, _ = p.add("MatMulGrad", [a, w, da], (0, a.rows, a.columns), (0, w.rows, w.columns))
    return p


class Distributed:
    """The program of one configuration; `program` is filled by the constructor."""

    def __init__(
        self,
        revision: str,
        data: int,
        horizontal: int,
        stages: int,
        microbatches: int,
        *,
        layers: int,
        width: int,
        batch: int,
        filtered: bool = False,
        allgathers: bool | None = None,
    ) -> None:
        self.program, self.revision, self.filtered = Program(), revision, filtered
        self.d, self.h, self.p, self.m = data, horizontal, stages, microbatches
        self.layers, self.width, self.batch = layers, width, batch
        self.outputs: dict[tuple[str, int], list[list[Value]]] = defaultdict(list)
        place = self.place_before if revision == "R3" else self.place_within
        self.x, self.z, self.n, self.w = place()
        for i in range(data):
            self.replica(i)
        if data > 1:
            self.join(revision != "R3" if allgathers is None else allgathers)
        if revision == "R3":
            self.optimizer()

    def device(self, i: int, j: int, k: int) -> int:
        return 1 + i * self.h * self.p + j * self.p + k

    def shard(self, layer: int) -> tuple[int, int]:
        if layer % 2 == 0:
            return self.width, self.width // self.h
        return self.width // self.h, self.width

    def place_before(self):  # type: ignore[no-untyped-def]
        """R3: a function of its own places everything; what it leaves are inputs."""
        p, x, z, n, w = self.program, {}, {}, {}, {}
        rows = self.batch // self.d // self.m
        for i in range(self.d):
            for j in range(self.h):
                for mb in range(self.m):
                    x[i, j, mb] = p.given(self.device(i, j, 0), rows, self.width)
                    z[i, j, mb] = p.given(self.device(i, j, self.p - 1), rows, self.width)
                n[i, j] = p.given(self.device(i, j, self.p - 1), 1, 1)
                for layer in range(self.layers):
                    k = layer // (self.layers // self.p)
                    w[i, j, layer] = p.given(self.device(i, j, k), *self.shard(layer))
        return x, z, n, w

    def place_within(self):  # type: ignore[no-untyped-def]
        """R1, R2: placing is a part of the program; weights reach their stage at first use."""
        p, x, z, w = self.program, {}, {}, {}
        firsts = [self.device(i, 0, 0) for i in range(self.d)]

        def over_replicas(value: Value, split: bool) -> list[Value]:
            rows = value.rows // self.d if split else value.rows
            if self.d == 1:
                return [p.send(value, firsts[0])]
            kind = "MPIScatter" if split else "MPIBroadcast"
            return p.add(kind, [value], *((device, rows, value.columns) for device in firsts))

        def over_shards(value: Value, i: int, shape: tuple[int, int], kind: str) -> list[Value]:
            devices = [self.device(i, j, 0) for j in range(self.h)]
            return p.add(kind, [value], *((device, *shape) for device in devices)) if self.h > 1 else [value]

        def microbatches(value: Value) -> list[Value]:
            if self.p == 1:
                return [value]
            rows = value.rows // self.m
            return p.add("Split", [value], *((value.device, rows, value.columns) for _ in range(self.m)))

        given = [p.given(0, self.batch, self.width) for _ in "xz"]
        whole = [over_replicas(value, True) for value in given]
        weights: list[list[Value]] = []
        if not self.filtered:
            weights = [over_replicas(p.given(0, self.width, self.width), False) for _ in range(self.layers)]
        for i in range(self.d):
            shared = [over_shards(v[i], i, (v[i].rows, self.width), "MPIBroadcast") for v in whole]
            for layer in range(self.layers):
                if self.filtered:
                    k = layer // (self.layers // self.p)
                    for j in range(self.h):
                        w[i, j, layer] = p.given(self.device(i, j, k), *self.shard(layer))
                else:
                    for j, value in enumerate(over_shards(weights[layer][i], i, self.shard(layer), "MPIScatter")):
                        w[i, j, layer] = value
            for j in range(self.h):
                for mb, value in enumerate(microbatches(shared[0][j])):
                    x[i, j, mb] = value
                for mb, value in enumerate(microbatches(shared[1][j])):
                    z[i, j, mb] = value
        return x, z, None, w

    def replica(self, i: int) -> None:
        """The steps of the schedule, all shards of a stage in turn, sends at the end of every step."""
        self.i, self.at, self.sent, self.matmuls = i, {}, {}, Counter()
        self.all: dict[tuple[str, int, int], Value] = {}
        each = self.layers // self.p
        for step in schedule(self.p, self.m):
            for k, (kind, mb) in sorted(step.items()):
                (self.forward if kind == "f" else self.backward)(k, mb, range(k * each, (k + 1) * each))
            for k, (kind, mb) in sorted(step.items()):
                to = k + 1 if kind == "f" else k - 1
                if 0 <= to < self.p:
                    name = ("a", (k + 1) * each - 1, mb) if kind == "f" else ("dy", k * each, mb)
                    for j in range(self.h):
                        self.at[(*name, j)] = self.program.send(self.at[(*name, j)], self.device(i, j, to))
        for name in [("l", 0), *((n, x) for x in range(self.layers) for n in ("dw", "dy")[: 2 if x == 0 else 1])]:
            self.outputs[name].append([self.all[(*name, j)] for j in range(self.h)])

    def here(self, value: Value, device: int) -> Value:
        """A value on a device, sent there at its first use and then kept (R1, R2)."""
        if value.device == device:
            return value
        if (value, device) not in self.sent:
            self.sent[value, device] = self.program.send(value, device)
        return self.sent[value, device]

    def count(self, mb: int, names: list[tuple[str, int, int]]) -> None:
        self.matmuls[mb] += 1
        if self.h > 1 and self.matmuls[mb] % 2 == 0:
            for name in names:
                parts = [self.at[(*name, j)] for j in range(self.h)]
                joined = self.program.add("MPIAllreduce", parts, *((v.device, v.rows, v.columns) for v in parts))
                for j, value in enumerate(joined):
                    self.at[(*name, j)] = value

    def gather(self, kind: str, name: tuple[str, int], mb: int) -> None:
        for j in range(self.h):
            value, key = self.at[(*name, mb, j)], (*name, j)
            if mb == 0:
                self.all[key] = self.program.same("Identity", [value], value) if self.m > 1 else value
            elif kind == "Add":
                self.all[key] = self.program.same("Add", [self.all[key], value], value)
            else:
                rows = self.all[key].rows + value.rows
                shape = (value.device, rows, value.columns)
                self.all[key] = self.program.add("Concat", [self.all[key], value], shape)[0]

    def forward(self, k: int, mb: int, mine: range) -> None:
        p, i = self.program, self.i
        devices = [self.device(i, j, k) for j in range(self.h)]
        for layer in mine:
            for j, device in enumerate(devices):
                a = self.x[i, j, mb] if layer == 0 else self.at["a", layer - 1, mb, j]
                w = self.here(self.w[i, j, layer], device)
                self.at["y", layer, mb, j] = p.add("MatMul", [a, w], (device, a.rows, w.columns))[0]
            self.count(mb, [("y", layer, mb)])
            for j in range(self.h):
                y = self.at["y", layer, mb, j]
                self.at["a", layer, mb, j] = p.same("Relu", [y], y)
        if k == self.p - 1:
            for kind, name in (("Loss", "l"), ("LossGrad", "dy")):
                number = 0 if kind == "Loss" else self.layers
                for j, device in enumerate(devices):
                    a = self.at["a", self.layers - 1, mb, j]
                    n = [self.n[i, j]] if self.n else []
                    inputs = [a, self.here(self.z[i, j, mb], device), *n]
                    self.at[name, number, mb, j] = p.same(kind, inputs, a)
                if kind == "Loss":
                    self.gather("Concat", ("l", 0), mb)

    def backward(self, k: int, mb: int, mine: range) -> None:
        p, i = self.program, self.i
        for layer in reversed(mine):
            for j in range(self.h):
                y, dy = self.at["y", layer, mb, j], self.at["dy", layer + 1, mb, j]
                self.at["da", layer, mb, j] = p.same("ReluGrad", [y, dy], y)
            for j in range(self.h):
                a = self.x[i, j, mb] if layer == 0 else self.at["a", layer - 1, mb, j]
                w = self.here(self.w[i, j, layer], self.device(i, j, k))
                shapes = [(w.device, a.rows, a.columns), (w.device, w.rows, w.columns)]
                self.at["dy", layer, mb, j], self.at["dw", layer, mb, j] = p.add(
                    "MatMulGrad", [a, w, self.at["da", layer, mb, j]], *shapes
                )
            self.count(mb, [("dy", layer, mb)])
            if layer == 0:
                self.gather("Concat", ("dy", 0), mb)
            self.gather("Add", ("dw", layer), mb)

    def join(self, allgathers: bool) -> None:
        """Gradients and outputs over replicas. R1 and R2 name one output only, which lives on the first of them."""
        names = [("l", 0), *(("dw", layer) for layer in reversed(range(1, self.layers))), ("dy", 0), ("dw", 0)]
        for name in names:
            for j, group in enumerate(zip(*self.outputs[name], strict=True)):
                members = group if self.revision == "R3" else group[:1]
                if name[0] == "dw":
                    joined = self.program.add(
                        "MPIAllreduce", list(group), *((v.device, v.rows, v.columns) for v in members)
                    )
                    for i, value in enumerate(joined):
                        self.outputs[name][i][j] = value
                elif allgathers:
                    self.program.add(
                        "MPIAllgather", list(group), *((v.device, v.rows * self.d, v.columns) for v in members)
                    )

    def optimizer(self) -> None:
        each = self.layers // self.p
        for i in range(self.d):
            for j in range(self.h):
                for k in range(self.p):
                    mine = range(k * each, (k + 1) * each)
                    weights = [self.w[i, j, layer] for layer in mine]
                    gradients = [self.outputs["dw", layer][i][j] for layer in mine]
                    self.program.add(
                        "SGDOptimizer", weights + gradients, *((w.device, w.rows, w.columns) for w in weights)
                    )


CONSTANTS = {
    "R1": {"F": 1e14, "M": 1.2e12, "byte": 8e9},
    "R2": {"F": 1e14, "M": 1.2e12, "byte": 1.25e8},
    "R3": {"F": 1.4e13, "M": 9e11, "byte": 1.25e8, "k0": 1e-5},
}


def seconds(revision: str, op: Op, gbps: float, constants: dict[str, float]) -> float:
    """What an op takes on each of its devices."""
    c, s = constants, BYTES
    rate, memory, link, k0 = c["F"], c["M"], gbps * c["byte"], c.get("k0", 0.0)
    old, first = revision != "R3", op.inputs[0]

    def product(m: int, k: int, n: int) -> float:
        return k0 + (2 if revision == "R1" else s) * (m * k + k * n) / memory + 2 * m * k * n / rate

    if op.kind == "MatMul":
        return product(first.rows, first.columns, op.inputs[1].columns)
    if op.kind == "MatMulGrad":
        x, w, dz = op.inputs
        return product(dz.rows, dz.columns, w.rows) + product(x.columns, x.rows, dz.columns)
    if op.kind in ("Relu", "ReluGrad", "Add", "Loss", "LossGrad"):
        number = first.rows * first.columns
        operands = 2 if op.kind in ("ReluGrad", "Add") else 1
        return s * number / rate if old else k0 + operands * s * number / memory + number / rate
    if op.kind == "MPIAllreduce":
        return 2 * first.bytes * (len(op.inputs) - 1) / len(op.inputs) / link
    if op.kind == "MPIAllgather":
        return (s if old else 1) * 2 * first.bytes * (len(op.inputs) - 1) / len(op.inputs) / link
    if op.kind == "Send":
        return (s if old else 1) * first.bytes / link
    if op.kind == "Split":
        return 1e-6
    if op.kind == "Concat":
        return 0.0 if old else k0
    if op.kind == "SGDOptimizer":
        number = first.rows * first.columns
        return k0 + 2 * s * number / memory + number / rate
    return 0.0


@dataclass
class Simulated:
    latency: float
    peak: dict[int, int]
    busy: dict[int, float]
    input_bytes: dict[int, int]
    kinds: Counter[str]


def interpret(program: Program, revision: str, gbps: float, constants: dict[str, float] | None = None) -> Simulated:
    """One op after the other: a barrier over its devices, its time, what it allocates, what it frees."""
    constants = constants or CONSTANTS[revision]
    uses = Counter(value for op in program.ops for value in op.inputs)
    given = set(program.inputs)
    clock: dict[int, float] = defaultdict(float)
    live: dict[int, int] = defaultdict(int)
    sizes: dict[int, int] = defaultdict(int)
    for value in program.inputs:
        sizes[value.device] += value.bytes
    if revision == "R3":
        live.update(sizes)
    peak = dict(live)
    busy: dict[int, float] = defaultdict(float)
    for op in program.ops:
        devices = {value.device for value in (*op.inputs, *op.outputs)}
        start, duration = max(clock[device] for device in devices), seconds(revision, op, gbps, constants)
        for device in devices:
            clock[device] = start + duration
            busy[device] += duration
        if op.kind == "SGDOptimizer":
            continue  # in place
        for value in op.outputs:
            live[value.device] += value.bytes
        for device in devices:
            peak[device] = max(peak.get(device, 0), live[device])
        for value in op.inputs:
            uses[value] -= 1
            if value not in given and uses[value] == 0:
                live[value.device] -= value.bytes
    kinds = Counter(op.kind for op in program.ops)
    return Simulated(max(clock.values()), peak, dict(busy), dict(sizes), kinds)
