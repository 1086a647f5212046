"""The operations that are timed, in PyTorch. Only here, in `devices` and in `ranks` is PyTorch called."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

from engine.measure.samples import Attention, Device, LaunchSample, Product, SampleTiming, Transfer
from engine.measure.timing import timed

__all__ = ["Benchmarks"]

POOL: Final = {"cpu": 256_000_000, "cuda": 1_000_000_000, "rocm": 1_000_000_000}
"""Bytes that transfers cycle through, several times the largest cache, so that every pass reaches memory."""
UNTIL_THROTTLED: Final = 0.3
"""Seconds of work after which an accelerator's clock has fallen to what its power limit allows. One H100 of 700 W
multiplied 8192 x 8192 matrices at 764 TFLOP/s after a pause, at 685 from 0.13 s on, and at 680 ten seconds later."""
GRAPH_KERNELS: Final = 200
"""Kernels of the captured graph, enough for its start to be negligible per kernel. Source: stated by us."""
TINY: Final = {"tokens": 8, "hidden": 32, "heads": 2}
"""A block so small that its time is the host's."""


class Benchmarks:
    """Operations on one device; every method times one of them, within about `seconds`."""

    def __init__(self, torch: Any, device: Device) -> None:
        self._torch = torch
        self._device = device
        self._where = torch.device("cpu" if device.kind == "cpu" else "cuda:0")
        self._wide = getattr(torch, device.datatype)
        # Random numbers, since zeros run cooler and faster than real data; the same ones every time.
        self._random = torch.Generator(device=self._where).manual_seed(1)
        self._pool: Any = None

    @property
    def warm_seconds(self) -> float:
        """Work before the first sample of every timing [s], and what its samples last together at least."""
        return 0.0 if self._device.kind == "cpu" else UNTIL_THROTTLED

    @property
    def eight_bit(self) -> bool:
        """Return True if the device multiplies in 8-bit floating point through PyTorch."""
        if self._device.kind == "cpu" or not hasattr(self._torch, "_scaled_mm"):
            return False
        if self._device.kind == "rocm":
            return self._device.generation in ("cdna3", "cdna4")
        return tuple(self._torch.cuda.get_device_capability(0)) >= (8, 9)

    @property
    def kernels(self) -> tuple[Literal["flash2", "native"], ...]:
        """Fused attention kernels to time: the framework's own, and one made for the generation where they differ."""
        if self._device.kind != "cuda" or self._device.generation == "ampere":
            return ("native",)
        return ("native", "flash2")

    def product(self, datatype: str, size: tuple[int, int, int], seconds: float) -> Product:
        """Returns a product of [m, k] by [k, n]."""
        m, n, k = size
        torch = self._torch
        with torch.no_grad():
            if datatype == "float8":
                call = self._eight_bit_product(m, n, k)
            else:
                a, b = self._randoms((m, k)), self._randoms((k, n))
                out = torch.empty((m, n), dtype=self._wide, device=self._where)

                def call() -> object:
                    return torch.mm(a, b, out=out)

            time = self._timed(call, seconds)
        kinds: dict[str, Any] = {"datatype": datatype}
        return Product(**kinds, m=m, n=n, k=k, time=time)

    def _eight_bit_product(self, m: int, n: int, k: int) -> Callable[[], object]:
        torch = self._torch
        narrow = torch.float8_e4m3fnuz if self._device.generation == "cdna3" else torch.float8_e4m3fn
        a, b = self._randoms((m, k)).to(narrow), self._randoms((n, k)).to(narrow).t()
        one = torch.ones((), device=self._where)
        return lambda: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=self._wide, use_fast_accum=True)

    def attention(
        self, kernel: Literal["flash2", "native"], heads: int, head_size: int, size: tuple[int, int], seconds: float
    ) -> Attention:
        """Times causal attention, forward, and forward with backward; `size` is (batch, sequence)."""
        torch = self._torch
        batch, sequence = size
        shape = (batch, heads, sequence, head_size)
        inputs = tuple(self._randoms(shape).requires_grad_() for _ in range(3))
        gradient = self._randoms(shape)

        def forward() -> Any:
            return torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=True)

        def both() -> object:
            return torch.autograd.grad(forward(), inputs, gradient)

        with self._attention_kernel(kernel):
            ahead = self._timed(forward, 0.4 * seconds)
            whole = self._timed(both, 0.6 * seconds)
        return Attention(
            kernel=kernel, heads=heads, head_size=head_size, batch=batch, sequence=sequence, forward=ahead, both=whole
        )

    def _attention_kernel(self, kernel: str) -> Any:
        """Restrict PyTorch to one implementation, so that the name is the kernel that ran."""
        attention = self._torch.nn.attention
        backend = attention.SDPBackend.FLASH_ATTENTION
        if self._device.kind == "cuda" and self._device.generation != "ampere" and kernel == "native":
            backend = attention.SDPBackend.CUDNN_ATTENTION
        return attention.sdpa_kernel([backend])

    def transfer(self, kind: Literal["copy", "triad"], moved: int, seconds: float) -> Transfer:
        """Returns a copy (a read and a write) or the triad a = b + 3 c (two reads and a write) of `moved` bytes in
        all."""
        torch = self._torch
        tensors = 2 if kind == "copy" else 3
        elements = max(moved // (4 * tensors), 1)
        pool = self._pool_of(elements)
        places = itertools.cycle(range(0, pool[0].numel() - elements + 1, elements))

        def call() -> object:
            at = next(places)
            target, first, second = (part[at : at + elements] for part in pool)
            if kind == "copy":
                return target.copy_(first)
            return torch.add(first, second, alpha=3.0, out=target)

        with torch.no_grad():
            time = self._timed(call, seconds)
        return Transfer(kind=kind, moved=4 * tensors * elements, time=time)

    def _pool_of(self, elements: int) -> Any:
        wanted = max(POOL[self._device.kind] // 12, elements)
        if self._pool is None or self._pool[0].numel() < wanted:
            self._pool = None
            # Written once, so that the pages are there.
            self._pool = tuple(self._torch.full((wanted,), 1.0, device=self._where) for _ in range(3))
        return self._pool

    def release(self) -> None:
        """Gives the memory of the transfers back."""
        self._pool = None

    def kernel(self, seconds: float) -> LaunchSample:
        """Returns the host time of the smallest operators, one after another [s]."""
        torch = self._torch
        one = torch.zeros(1, device=self._where)
        with torch.no_grad():
            time = self._host_timed(lambda: one.add_(1.0), seconds)
        return LaunchSample(kind="kernel", time=time)

    def graph(self, seconds: float) -> LaunchSample:
        """Returns the device time of the smallest kernel inside a captured graph [s]."""
        torch = self._torch
        one = torch.zeros(1, device=self._where)
        with torch.no_grad():
            one.add_(1.0)
            torch.cuda.synchronize()
            captured = torch.cuda.CUDAGraph()
            with torch.cuda.graph(captured):
                for _ in range(GRAPH_KERNELS):
                    one.add_(1.0)
            found = self._timed(captured.replay, seconds)
        per_kernel = SampleTiming(
            seconds=found.seconds / GRAPH_KERNELS, spread=found.spread, repeats=found.repeats * GRAPH_KERNELS
        )
        return LaunchSample(kind="graph", time=per_kernel)

    def block(self, kind: Literal["block_forward", "block"], seconds: float) -> LaunchSample:
        """Returns the host time of a tiny transformer block in plain PyTorch, forward, or forward with backward [s]."""
        torch = self._torch
        hidden, tokens, heads = TINY["hidden"], TINY["tokens"], TINY["heads"]
        shapes = ((3 * hidden, hidden), (hidden, hidden), (4 * hidden, hidden), (hidden, 4 * hidden))
        weights = [self._randoms(shape).requires_grad_() for shape in shapes]
        norms = [torch.ones(hidden, dtype=self._wide, device=self._where, requires_grad=True) for _ in range(4)]
        x = self._randoms((1, tokens, hidden)).requires_grad_()
        gradient = self._randoms((1, tokens, hidden))
        inputs = (x, *weights, *norms)

        def forward() -> Any:
            return _run_block(torch.nn.functional, x, weights, norms, heads)

        def both() -> object:
            return torch.autograd.grad(forward(), inputs, gradient)

        time = self._host_timed(forward if kind == "block_forward" else both, seconds)
        return LaunchSample(kind=kind, time=time)

    def _randoms(self, shape: tuple[int, ...]) -> Any:
        scale = 1.0 / math.sqrt(shape[-1])
        values = self._torch.randn(shape, generator=self._random, device=self._where, dtype=self._torch.float32)
        return (values * scale).to(self._wide)

    def _host_timed(self, call: Callable[[], object], seconds: float) -> SampleTiming:
        """Timed with one thread: operators are begun by one, and waking others up is no part of that."""
        threads = self._torch.get_num_threads()
        self._torch.set_num_threads(1)
        try:
            return self._timed(call, seconds)
        finally:
            self._torch.set_num_threads(threads)

    def _timed(self, call: Callable[[], object], seconds: float) -> SampleTiming:
        if self._device.kind == "cpu":
            return timed(call, seconds=seconds)
        # Waiting for the device costs some ten microseconds, so that a sample has to be longer than on a CPU.
        wait, warm = self._torch.cuda.synchronize, self.warm_seconds
        return timed(call, seconds=seconds, synchronize=wait, sample_seconds=5e-3, warm_seconds=warm)


def _run_block(functional: Any, x: Any, weights: Sequence[Any], norms: Sequence[Any], heads: int) -> Any:
    """Norm, attention, residual, norm, feed-forward layer, residual."""
    batch, tokens, hidden = x.shape
    normed = functional.layer_norm(x, (hidden,), norms[0], norms[1])
    joint = functional.linear(normed, weights[0]).view(batch, tokens, 3, heads, hidden // heads)
    query, key, value = joint.permute(2, 0, 3, 1, 4)
    mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    x = x + functional.linear(mixed.transpose(1, 2).reshape(batch, tokens, hidden), weights[1])
    normed = functional.layer_norm(x, (hidden,), norms[2], norms[3])
    return x + functional.linear(functional.gelu(functional.linear(normed, weights[2])), weights[3])
