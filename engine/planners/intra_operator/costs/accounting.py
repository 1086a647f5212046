"""The factors of a layer: tensors that its blocks convert, add up and store, and seconds of their kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.executions.arrays import Floats, Ints
from engine.planners.intra_operator.contractions import Contraction, Operand
from engine.planners.intra_operator.costs.factors import (
    BEFORE,
    LAST,
    REPLICATED,
    TOKENS,
    Factor,
    LayerAccount,
    all_states,
)
from engine.planners.intra_operator.costs.kernel_seconds import block_seconds, norm_seconds
from engine.planners.intra_operator.costs.options import (
    COLUMNS,
    EXPERTS,
    ROWS,
    SPLIT_TOKENS,
    BlockOptions,
    Widths,
    repeated_heads,
)
from engine.planners.intra_operator.costs.recomputation import Again, done_again
from engine.planners.intra_operator.layer_graphs import LayerGraph
from engine.planners.intra_operator.mesh import Mesh
from engine.planners.intra_operator.parallel_blocks import ParallelBlock

__all__ = ["accounted"]

NORM_REDUCES: Final = 4
"""All-reduces of one number per token where a norm's input is split by columns: mean and variance forward, and the two
sums of its backward pass."""


def accounted(
    graph: LayerGraph,
    blocks: Sequence[ParallelBlock],
    options: Sequence[BlockOptions],
    mesh: Mesh,
    widths: Widths,
    *,
    first: bool,
) -> list[Factor]:
    """Returns the factors of a layer.

    Args:
        graph: of the layer.
        blocks: its ParallelBlocks.
        options: the strategies of each.
        mesh: that shares it.
        widths: bytes of elements and parameters, stored tensors and sharding.
        first: whether nothing is before it, so that its input needs no gradient.
    """
    made = _LayerAccounts(graph, tuple(blocks), tuple(options), mesh, widths, first, done_again(mesh, widths))
    return made.factors()


@dataclass(frozen=True)
class _LayerAccounts:
    graph: LayerGraph
    blocks: tuple[ParallelBlock, ...]
    options: tuple[BlockOptions, ...]
    mesh: Mesh
    widths: Widths
    first: bool
    again: Again

    def factors(self) -> list[Factor]:
        forgets = self.widths.recompute == "full"
        account = LayerAccount(self.mesh.shape, self.widths.accumulation, forgets=forgets)
        step = LayerAccount(self.mesh.shape)  # what is done once, and not for every microbatch
        for at, option in enumerate(self.options):
            weights = self._bytes([each.weight for each in self._weighted(at)])
            _add_gradient_traffic(account if self.widths.fsdp else step, at, option, weights, self.mesh, self.widths)
            again = self._repeated(at)
            keys = [each for each in self._weighted(at) if each.name in ("k", "v")]
            more = self._bytes([each.weight for each in keys]) * again
            _add_parameter_memory(account, at, option, (weights + more) / self.widths.element, self.widths)
            if keys:
                split = account.parts(np.ones_like(option.ids, bool))
                account.hold((at,), self._bytes([each.out for each in keys]) * again / split, needed=True)
            if option.experts:
                self._experts(account, at)
            else:
                self._inputs(account, at)
                self._results(account, at)
            if self.mesh.system is not None:
                seconds = block_seconds(self.graph, self.blocks[at], option, self.mesh, self.again, first=self.first)
                account.spend((at,), seconds)
        self._residual(account)
        if self.first and self.graph.vocabulary:
            self._ends(account)
        return [*account.factors, *step.factors]

    def _ends(self, account: LayerAccount) -> None:
        """Memory that a model needs once: embedding and head, logits, and the cost model's reserve.

        Both matrices are split or whole as the weights of the first block are: by words where these are split, on every
        device where it splits tokens. Either way a device has an equal part of the logits.
        """
        option = self.options[0]
        _add_parameter_memory(account, 0, option, np.asarray(float(self.graph.vocabulary)), self.widths)
        if (kernels := self.mesh.kernels) is not None:
            logits = kernels.logit_bytes * self.graph.logits / float(np.prod(self.mesh.shape))
            account.hold((0,), np.full(len(option.ids), kernels.reserve + logits))

    def _inputs(self, account: LayerAccount, at: int) -> None:
        """Adds the input of a block: converted in both forward passes, its gradient once, and stored.

        Under sequence parallelism each device stores its part. Gathering it again is hidden behind the gradient of the
        input (Korthikanti et al. 2022, section 4.2.2), so that it counts once. Where the forward pass is repeated, that
        conversion also serves the gradients of weights.
        """
        option, scattered = self.options[at], self.widths.sequence
        for size, source in self._reads(at):
            states, keys = self._states(source, at)
            wants = option.wants[None]
            account.convert(keys, states, wants, size, 1.0 + self.again.tensor if scattered else 2.0)
            apart = wants != REPLICATED
            account.keep(keys, apart | (states != REPLICATED) if scattered else apart & (states == states), size)
            if self.first and source == BEFORE:
                continue
            # Split by columns, the gradient of the input is a partial sum on every device.
            columns = option.uses(COLUMNS)[None]
            account.reduce(keys, columns, apart, size, scattered=(states != REPLICATED) & scattered)
            account.convert(keys, wants, states, size)

    def _results(self, account: LayerAccount, at: int) -> None:
        """Adds the result of a block: its reduction where rows are split, and the input that an activation function
        stores."""
        option, scattered = self.options[at], self.widths.sequence
        weighted = self._weighted(at)
        last = [each for each in weighted if each.name in self.graph.joined]
        ahead = [each for each in weighted if each not in last]
        out = self._bytes([each.out for each in last or ahead])
        # Split by rows, so is the result (Shoeybi et al. 2019, section 3).
        partial = option.uses(COLUMNS if last else ROWS)
        account.reduce((at,), partial, ~partial, out, count=1.0 + self.again.tensor, scattered=scattered)
        if scattered:  # the gradient comes split by tokens, and rows want it whole
            account.gather((at,), partial, ~partial, out)
        keeps = {each.after for each in self.graph.between if each.keeps}
        if last:
            self._inside(account, at, ahead, last[0])
        elif acted := [each.out for each in weighted if each.name in keeps]:
            account.keep((at,), option.gives != REPLICATED, self._bytes(acted))
        scores = [each.contraction.out for each in self.blocks[at].members if each.contraction.name == "qk"]
        if scores:
            both = 2.0 * self._bytes(scores) if self.widths.scores and self.widths.recompute != "selective" else 0.0
            account.keep((at,), np.ones_like(option.ids, bool), out + both)

    def _inside(self, account: LayerAccount, at: int, ahead: Sequence[Contraction], last: Contraction) -> None:
        """The hidden tensors of two products in one block: added up where rows of the first are split."""
        option = self.options[at]
        rows = option.uses(ROWS)
        hidden, read = self._bytes([each.out for each in ahead]), self._bytes([_activation_operand(last)])
        for size, count in ((hidden, 1.0 + self.again.tensor), (read, 1.0)):
            account.reduce((at,), rows, ~rows, size, count=count)
        account.keep((at,), ~rows, hidden + read)

    def _experts(self, account: LayerAccount, at: int) -> None:
        """Adds the traffic of tokens on their way to the experts and back.

        A conversion for an expert is stored for its gradients, so that it counts once forward and once back: a split of
        the experts has four all-to-alls of all places. Where masks choose, both products with them are split by groups.
        Where tokens are sorted and no axis splits the experts, tokens are gathered before they are copied to their
        places, and places are weighed before they are added up. A sorted token goes once to each device that has
        experts for it: of n devices k draws reach n (1 - (1 - 1/n)^k), as the calibrated cost model's forwarding
        dispatchers have it; its all-to-all sends a copy for each expert, at a higher rate.
        """
        option, scattered = self.options[at], self.widths.sequence
        weighted = self._weighted(at)
        ahead, last = weighted[:-1], weighted[-1]
        twice = 1.0 + self.again.experts
        sent, back = self._bytes([_activation_operand(ahead[0])]), self._bytes([last.out])
        stream = self._stream
        inside, tokens = option.wants, np.full_like(option.wants, TOKENS)
        for size, there, home in ((sent, twice, 1.0), (back, 1.0, twice)):
            whole = stream * self._destinations(option) if self.graph.visits else np.full(len(option.ids), size)
            account.convert((at,), tokens, inside, whole, there)
            account.convert((at,), inside, tokens, whole, home)
            for one in np.unique(whole):
                columns = option.uses(COLUMNS) & (whole == one)[:, None]
                account.reduce((at,), columns, inside != REPLICATED, float(one), count=home, scattered=scattered)
        self._inside(account, at, ahead, last)
        account.keep((at,), inside != REPLICATED, sent)
        out, states = self._out, self.options[self._out].gives
        every = np.full_like(states, TOKENS)
        account.convert((out,), states, every, stream, 1.0 + self.again.tensor)
        account.convert((out,), every, states, stream)
        gate = self._block("gate" if not self.graph.visits else "router")
        logits = self._bytes([self.blocks[gate].root.out])
        given = self.options[gate].gives
        account.convert((gate,), given, np.full_like(given, TOKENS), logits, 1.0 + self.again.tensor)
        account.convert((gate,), np.full_like(given, TOKENS), given, logits)
        if not self.graph.visits:
            masked = [each.contraction for each in self.blocks[gate].members[1:]]
            kept = [masked[0].left, masked[0].right, masked[1].right]
            account.keep((gate,), np.ones_like(self.options[gate].ids, bool), self._bytes(kept))
        for other, option in enumerate(self.options):
            if option.joined:
                tokens = np.full_like(option.gives, TOKENS)
                account.convert((other,), option.gives, tokens, stream, 1.0 + self.again.tensor)
                account.convert((other,), np.full_like(option.gives, TOKENS), option.gives, stream)

    def _destinations(self, option: BlockOptions) -> Floats:
        """Return the number of devices that receive a sorted token, for every strategy; 1 if no axis splits the
        experts."""
        devices = np.prod(np.where(option.uses(EXPERTS), np.array(self.mesh.shape, float), 1.0), axis=-1)
        return np.asarray(devices * (1.0 - (1.0 - 1.0 / devices) ** self.graph.visits))

    def _residual(self, account: LayerAccount) -> None:
        """Adds the additions to the residual stream, and norms."""
        stream, out = self._stream, self._out
        giver = next((at for at, each in enumerate(self.options) if each.experts), len(self.options) - 1)
        behind = self.options[giver].behind
        before = np.full((1, len(self.mesh.shape)), REPLICATED) if self.first else all_states(len(self.mesh.shape))
        before = np.broadcast_to(before, (len(all_states(len(self.mesh.shape))), before.shape[-1]))
        mixed = self.options[out].gives
        edges = (
            [(BEFORE, before, giver, behind), (out, mixed, giver, behind)]
            if self.graph.beside
            else [
                (BEFORE, before, out, mixed),
                (out, mixed, giver, behind),
            ]
        )
        for source, states, target, wanted in edges:
            if source == target:
                continue
            keys = (source, target)
            account.convert(keys, states[:, None], wanted[None], stream, 1.0 + self.again.tensor)
            if source != BEFORE or not self.first:
                account.convert(keys, wanted[None], states[:, None], stream)
        # One number per token.
        width = stream / self.graph.sizes["h"]
        normed = [(BEFORE, before)] if self.graph.beside else [(BEFORE, before), (out, mixed)]
        compress = [self._block(name) for name in ("kv_down",) if name in self._names]
        for source, states in [*normed, *((at, self.options[at].gives) for at in compress)]:
            count = NORM_REDUCES * (1.0 + self.again.elementwise / 2.0)  # half of them are forward
            account.reduce((source,), states == LAST, states == TOKENS, width, count=count)
        if account.forgets:  # of the forward pass a layer's input alone is left
            source, states = (0, self.options[0].wants) if self.first else (BEFORE, before)
            account.hold((source,), stream / account.parts(states != REPLICATED))
        if self.mesh.system is not None:
            elements = stream / self.widths.element
            if self.first:  # the input comes as the first block wants it
                normed[0] = (0, self.options[0].wants)
            for source, states in normed:
                here = elements / account.parts(states != REPLICATED)
                account.spend((source,), norm_seconds(self.mesh, here, self.again))

    def _repeated(self, at: int) -> Floats:
        """Returns the number of copies of each key and value head beyond the first, for every strategy of a block."""
        columns = self.options[at].uses(COLUMNS)
        devices = np.prod(np.where(columns, np.array(self.mesh.shape), 1), axis=-1)
        return np.array([float(max(repeated_heads(self.graph.sizes, int(each)) - 1, 0)) for each in devices])

    @property
    def _names(self) -> dict[str, int]:
        return {name: at for at, block in enumerate(self.blocks) for name in block.contractions}

    def _block(self, contraction: str) -> int:
        return self._names[contraction]

    @property
    def _out(self) -> int:
        """The block at whose result the first residual is added."""
        return self._block(self.graph.after_attention or self.blocks[-1].root.name)

    @property
    def _stream(self) -> float:
        """The residual stream [bytes]."""
        return self._bytes([self.blocks[0].root.left])

    def _weighted(self, at: int) -> list[Contraction]:
        return [each.contraction for each in self.blocks[at].members if each.contraction.weight is not None]

    def _reads(self, at: int) -> list[tuple[float, int]]:
        """Returns the tensors that a block reads from others: bytes, and the block that makes each."""
        found: dict[tuple[str, int], float] = {}
        for each in self._weighted(at):
            if each.name in self.graph.joined:
                continue
            made = self.graph.reads.get(each.name, "")
            key = (each.left.name, self._block(made) if made else BEFORE)
            found[key] = self._bytes([each.left])
            if each.name == "kv_up":  # with the part of the keys that all heads share
                tail = next((one.out for one in self.graph.contractions if one.name == "k_rope"), None)
                found[key] += self._bytes([tail]) if tail is not None else 0.0
        return [(size, source) for (_, source), size in found.items()]

    def _states(self, source: int, at: int) -> tuple[Ints, tuple[int, int]]:
        """The states of a block's inputs, with axes for source and block."""
        if source != BEFORE:
            return self.options[source].gives[:, None], (source, at)
        states = all_states(len(self.mesh.shape))
        return (np.full_like(states, REPLICATED) if self.first else states)[:, None], (BEFORE, at)

    def _bytes(self, operands: Sequence[Operand | None]) -> float:
        return sum(each.elements(self.graph.sizes) for each in operands if each is not None) * self.widths.element


def _activation_operand(contraction: Contraction) -> Operand:
    """Returns the operand of a product that is not a weight."""
    return contraction.right if contraction.left.weight else contraction.left


def _add_gradient_traffic(
    account: LayerAccount, at: int, option: BlockOptions, size: float, mesh: Mesh, widths: Widths
) -> None:
    """All-reduce of the gradients of weights that an axis does not split; with FSDP a reduce-scatter, and an all-gather
    of the weights before each pass, for every microbatch.

    Where ZeRO adds up gradients over microbatches, Alpa all-reduces them and gathers new weights besides, half as much
    volume again; on a system they are scattered when the last is there, as the calibrated cost model has it.
    """
    # Data parallelism: each device has a partial sum of the gradient of a whole weight.
    tokens = option.uses(SPLIT_TOKENS)
    wide = (widths.gradient or widths.element) / widths.element
    # With ZeRO gradients are scattered in their own width, and new weights gathered in that of elements.
    whole = widths.accumulation > 1 and mesh.system is None
    added = (wide + 1.0) / 2.0 if widths.zero and not widths.fsdp and not whole else wide
    account.reduce((at,), tokens, ~tokens, size * added, scattered=widths.fsdp)
    if widths.fsdp:
        account.gather((at,), tokens, ~tokens, size, 2.0)
    elif widths.zero and whole:
        account.gather((at,), tokens, ~tokens, size)


def _add_parameter_memory(account: LayerAccount, at: int, option: BlockOptions, number: Floats, widths: Widths) -> None:
    """Memory of parameters that are split over the devices, or whole on each.

    Gradients that ZeRO adds up over microbatches are whole on each device until they are exchanged.
    """
    tokens = option.uses(SPLIT_TOKENS)
    split, copies = account.parts(~tokens), account.parts(tokens)
    # Gradient and optimizer state; ZeRO divides them over the copies of a parameter.
    rest = widths.parameter - widths.element
    if widths.fsdp:
        each: Floats = np.asarray(widths.parameter / copies)
    else:
        own = (widths.gradient or widths.element) if widths.accumulation > 1 else 0.0
        own = min(own, rest)
        each = np.asarray(widths.element + (own + (rest - own) / copies if widths.zero else rest))
    account.hold((at,), number * each / split)
