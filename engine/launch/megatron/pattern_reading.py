"""The model of a pattern of layers that arguments of Megatron-Core describe.

Sources: as in `hybrid_patterns`, and transformer_config.py for gated delta nets in GPT models.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import ValidationError

from engine.columns.stage_layouts import list_of_layers
from engine.launch.contract import LaunchError
from engine.launch.megatron.arguments import Arguments
from engine.launch.megatron.hybrid_patterns import (
    DELTA_NETS,
    PATTERNS,
    VARIANT,
    HybridPattern,
    parse_hybrid_pattern,
    split_into_stages,
)
from engine.launch.megatron.layouts import ENDS
from engine.launch.megatron.parser import flags_of
from engine.launch.report import OpenValue
from models.documents import shown
from models.layers import Block, block_of_letter

__all__ = [
    "delta_net_blocks",
    "has_hybrid_pattern",
    "has_pattern",
    "hybrid_layout",
    "layer_list",
    "stages_of_pattern",
    "stated_pattern",
]

_TERM: Final = re.compile(r"\(?\[([01](?:,[01])*)\]\)?(?:\*(\d{1,5}))?")


def layer_list(value: Any, name: str) -> int | list[int]:
    """Return a choice of layers: a number n for every n-th, or a list with a 1 for each chosen one.

    Args:
        value: a number, a list, or sums and products of lists as text, such as "([0]*3+[1]*58)".
        name: of the flag, for the message.

    Raises `LaunchError` for anything else.
    """
    if isinstance(value, list | tuple) and all(each in (0, 1) for each in value) and 0 < len(value) <= 100_000:
        return [int(each) for each in value]
    text = re.sub(r"\s", "", str(value))[:10_000]
    if text.isdecimal() and 0 < int(text[:9]) <= 100_000:
        return int(text[:9])
    repeated = re.fullmatch(r"\((.*)\)\*(\d{1,5})", text)  # ([1]*3+[0])*12
    times = int(repeated[2]) if repeated is not None else 1
    if repeated is not None:
        text = repeated[1]
    inner = text[1:-1] if text.startswith("(") and text.endswith(")") else text
    found: list[int] = []
    for term in inner.split("+"):
        match = _TERM.fullmatch(term)
        if match is None or len(found) > 100_000:
            raise LaunchError(f"{name} is {shown(value)}; it must be a number or a list such as ([0]*3+[1]*58).")
        found += [int(each) for each in match[1].split(",")] * min(int(match[2] or 1), 100_000)
    return found * min(times, 100_000 // max(len(found), 1) + 1)


def has_hybrid_pattern(args: Arguments) -> bool:
    """Return whether arguments state a pattern of layers in letters, valid or not.

    Args:
        args: arguments of the run.
    """
    return any(name in args for name in PATTERNS)


def has_pattern(args: Arguments) -> bool:
    """Return whether arguments state a model with a pattern of layers, in letters or by a variant of attention.

    Args:
        args: arguments of the run.
    """
    if has_hybrid_pattern(args):
        return True
    try:
        return args.word(VARIANT) in DELTA_NETS
    except OpenValue:
        return False


def delta_net_blocks(args: Arguments, hidden: int, feedforward: int, layers: int | None) -> list[Block]:
    """Return the blocks of a GPT model with gated delta nets in place of attention in some layers.

    Args:
        args: arguments of the run.
        hidden: width of the residual stream [elements].
        feedforward: width of an ordinary MLP by Megatron's rules [elements].
        layers: number of blocks, if stated.

    Raises `LaunchError` for flags that the layers cannot have.
    """
    name = args.name("linear_attention_freq")
    if layers is None or args["linear_attention_freq"] is None:
        raise LaunchError(f"{args.name(VARIANT)} needs {args.name('num_layers')} and {name}.")
    which = args["linear_attention_freq"]
    if str(which).strip().isdecimal():
        every = args.number("linear_attention_freq")
        linear = [number % every != 0 for number in range(1, layers + 1)]
    else:
        linear = _list_choice(layer_list(which, name), layers)
    experts = [False] * layers
    if args["num_experts"] is not None:
        freq = 1 if args["moe_layer_freq"] is None else layer_list(args["moe_layer_freq"], args.name("moe_layer_freq"))
        experts = _list_choice(freq, layers)
    for flag, listed in ((name, linear), (args.name("moe_layer_freq"), experts)):
        if len(listed) != layers:
            raise LaunchError(f"{flag} lists {len(listed):,} layers for {args.name('num_layers')} {layers:,}.")
    attention = "+" if args.on("multi_latent_attention") else "*"
    letters = [
        ("G" if delta else attention, "E" if routed else "-") for delta, routed in zip(linear, experts, strict=True)
    ]
    words = _PatternArguments(args, {"ffn_hidden_size": feedforward})
    stated = args.name(VARIANT)
    blocks = {letter: _block(stated, words, letter, hidden) for letter in {each for pair in letters for each in pair}}
    return [_pair(blocks[mixer], blocks[rest]) for mixer, rest in letters]


def _list_choice(choice: int | list[int], layers: int) -> list[bool]:
    """Return for each layer whether it is chosen; a number chooses layers whose number, from 0, is a multiple of it
    (`get_moe_layer_pattern` in experimental_attention_variant_module_specs.py)."""
    if isinstance(choice, int):
        return [place % choice == 0 for place in range(layers)]
    return [bool(each) for each in choice]


def stated_pattern(args: Arguments) -> HybridPattern:
    """Return the pattern that arguments state. Raises `LaunchError` for an invalid one.

    Args:
        args: arguments of the run, which state one.
    """
    name = next(each for each in PATTERNS if each in args)
    return parse_hybrid_pattern(args[name], args.name(name))


def letters_of_stages(args: Arguments) -> tuple[str, ...]:
    """Return the letters of every stage of the model."""
    first, last = (None if args[name] is None else args.number(name) for name in ENDS)
    return split_into_stages(stated_pattern(args), args.number("pipeline_model_parallel_size", 1), first, last)


def stages_of_pattern(args: Arguments, hidden: int, feedforward: int | None) -> list[list[Block]]:
    """Return the blocks of every stage of the model.

    Layers are paired to blocks of a mixer and a feed-forward layer where all of them alternate; otherwise each is a
    block of its own.

    Args:
        args: arguments of the run, which state a pattern in letters.
        hidden: width of the residual stream [elements].
        feedforward: width of an ordinary MLP by Megatron's rules [elements].

    Raises `LaunchError` for an invalid pattern or flags that its layers cannot have.
    """
    stages = letters_of_stages(args)
    words = _PatternArguments(args, {"ffn_hidden_size": feedforward})
    stated = args.name(next(each for each in PATTERNS if each in args))
    blocks = {letter: _block(stated, words, letter, hidden) for letter in dict.fromkeys("".join(stages))}
    single = [[blocks[letter] for letter in stage] for stage in stages]
    if all(_alternates(stage) for stage in single):
        return [
            [_pair(first, second) for first, second in zip(stage[::2], stage[1::2], strict=True)] for stage in single
        ]
    return single


def hybrid_layout(args: Arguments, layers: int | None) -> str | None:
    """Return the stage layout of a pattern in letters; None if it divides evenly or is not known.

    Args:
        args: arguments of the run.
        layers: blocks of the model, fewer than letters where these are paired; None if unknown.
    """
    stages = [len(each) for each in letters_of_stages(args)]
    if layers is None or len(stages) == 1:
        return None
    if sum(stages) == 2 * layers:
        stages = [each // 2 for each in stages]
    return list_of_layers(stages) if sum(stages) == layers else None


def _alternates(stage: list[Block]) -> bool:
    return len(stage) % 2 == 0 and all(bool(block.mixers) == (place % 2 == 0) for place, block in enumerate(stage))


def _pair(mixer: Block, feedforward: Block) -> Block:
    return Block(mixers=mixer.mixers, feedforwards=feedforward.feedforwards, norms=2)


def _block(name: str, words: Mapping[str, Any], letter: str, hidden: int) -> Block:
    """Return the block of a letter. Raises `LaunchError` naming the flag that states it and the missing one."""
    try:
        found = block_of_letter("megatron", letter, words, hidden)
    except _MissingFlagError as problem:
        raise LaunchError(f"{name} has {letter}, which needs {problem}.") from None
    except ValidationError as problem:
        first = problem.errors()[0]
        what = f"{first['loc'][-1]} is {shown(first['input'])}; it must be " if first["type"] != "refused" else "layer "
        raise LaunchError(f"{name} has {letter}, and its {what}{first['msg']}.") from None
    if found is None:
        raise LaunchError(f"{name} has {letter}, which is not read here.")
    return found


class _MissingFlagError(Exception):
    """A flag without a value and without a default that a layer needs; the message is its name."""


class _PatternArguments(Mapping[str, Any]):
    """Arguments as kinds of layers read them: numbers, truths and words by the parser's types."""

    def __init__(self, args: Arguments, derived: Mapping[str, Any]) -> None:
        self._args = args
        self._derived = derived

    def __getitem__(self, name: str) -> Any:
        value = self.get(name)
        if value is None:
            raise _MissingFlagError(self._args.name(name))
        return value

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of an argument, None where it is not set."""
        if name in self._derived:
            return self._derived[name]
        flag = flags_of()[name]
        if flag.is_bare:
            return self._args.on(name)
        if self._args[name] is None:
            return default
        return self._args.number(name) if flag.type == "int" else self._args.word(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._args)

    def __len__(self) -> int:
        return len(self._args)
