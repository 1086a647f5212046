"""A step of reinforcement learning over time: a bar per pool of GPUs, a piece per phase, idle time hatched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from dashboard.charts.elements.palette import SCENARIOS, TIME_KINDS, Palette, palette
from dashboard.charts.elements.template import Chart, base
from dashboard.words.numbers import percent, plain

__all__ = ["IDLE", "PoolPiece", "pool_pieces", "pools_over_time"]

ROW: Final = 62
IDLE: Final = "idle"
HELP: Final = "help"
WORDS: Final = {IDLE: "Idle", HELP: "Generate"}
TRAINING: Final = ("log_probs", "teacher", "update", "other")
SHORT: Final = 0.07
"""Share of the step from which a piece has its name on it."""


class PoolPiece(NamedTuple):
    """Phase of a pool from `start` for `seconds` [s]; `phase` is "idle" or "help" besides phases of the answer."""

    pool: str
    phase: str
    start: float
    seconds: float


def pool_pieces(best: Mapping[str, Any]) -> list[PoolPiece]:
    """Return the phases of each pool in their order; the pieces of a pool fill the step.

    Args:
        best: a mode of the answer to `plan_post_training`.
    """
    step, mode = best["step_s"]["value"], best["mode"]
    phases = {row["name"]: row["seconds"]["value"] for row in best["phases"]}
    if mode == "colocated":
        return _follow(f"{best['gpus_train']:,} GPUs", list(phases.items()), step)
    sync = [("synchronisation", phases.pop("synchronisation", 0.0))]
    trained = [(name, seconds) for name, seconds in phases.items() if name in TRAINING]
    rolled = [(name, seconds) for name, seconds in phases.items() if name not in TRAINING]
    train, rollout = f"{best['gpus_train']:,} GPUs train", f"{best['gpus_rollout']:,} GPUs generate"
    if mode == "asynchronous":
        # Only training waits for the weights; the rollout goes on.
        return [*_follow(train, [*trained, *sync], step), *_follow(rollout, rolled, step)]
    own = sum(seconds for _, seconds in trained)
    helped = step * (1.0 - best["idle_training"]) - own - sync[0][1]
    # Less than a millionth of the step is rounding.
    trained += [(HELP, helped)] if helped > 1e-6 * step else []
    return [*_wait(train, trained, sync, step), *_wait(rollout, rolled, sync, step)]


def _follow(pool: str, phases: list[tuple[str, float]], step: float) -> list[PoolPiece]:
    return _wait(pool, phases, [], step)


def _wait(pool: str, phases: list[tuple[str, float]], last: list[tuple[str, float]], step: float) -> list[PoolPiece]:
    """Return phases one after the other, with idle time before the last ones."""
    idle = step - sum(seconds for _, seconds in (*phases, *last))
    pieces, start = [], 0.0
    for name, seconds in (*phases, (IDLE, max(idle, 0.0)), *last):
        if seconds > 1e-6 * step:
            pieces.append(PoolPiece(pool, name, start, seconds))
            start += seconds
    return pieces


def _colour(phase: str, colours: Palette) -> str:
    kinds = {kind.key: kind.colour(colours) for kind in TIME_KINDS}
    shades = SCENARIOS[colours.mode]
    found = {
        "rollout": shades[2],
        HELP: shades[2],
        "reward": shades[3],
        "judge": shades[3],
        "log_probs": kinds["forward"],
        "teacher": kinds["forward"],
        "update": kinds["backward"],
        "switch": kinds["data"],
        "synchronisation": kinds["data"],
    }
    return found.get(phase) or colours.muted


def pools_over_time(best: Mapping[str, Any], words: Mapping[str, str], *, mode: str = "light") -> Chart:
    """Draw one step, a bar per pool of GPUs.

    Args:
        best: a mode of the answer to `plan_post_training`.
        words: phases on screen by name.
        mode: the theme.
    """
    colours = palette(mode)
    pieces, step = pool_pieces(best), best["step_s"]["value"]
    pools = list(dict.fromkeys(each.pool for each in pieces))
    drawing = base(colours, 76 + ROW * len(pools))
    named = {**words, **WORDS}
    for phase in dict.fromkeys(each.phase for each in pieces):
        own = [each for each in pieces if each.phase == phase]
        shade = _colour(phase, colours)
        marker: dict[str, Any] = {"color": shade, "line": {"color": colours.background, "width": 1}}
        if phase == IDLE:
            marker = {"color": colours.muted, "line": {"width": 0}, "pattern": colours.hatch_some([True] * len(own), 5)}
        drawing.draw(
            "bar",
            x=[each.seconds for each in own],
            base=[each.start for each in own],
            y=[each.pool for each in own],
            orientation="h",
            width=0.7,
            name=named[phase],
            marker=marker,
            text=[named[phase] if phase != IDLE and each.seconds > SHORT * step else "" for each in own],
            textposition="inside",
            textangle=0,
            insidetextanchor="middle",
            textfont={"color": colours.ink_on(shade), "size": 11},
            hovertext=[
                f"<b>{each.pool}: {named[phase]}</b><br>{plain(each.seconds)} s, {percent(each.seconds / step, 0)}"
                for each in own
            ],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    drawing.update_layout(barmode="overlay", showlegend=False, margin={"t": 8, "r": 18})
    drawing.update_xaxes(title="s", range=[0, step], showgrid=True)
    drawing.update_yaxes(autorange="reversed")
    told = [
        f"{pool}: " + ", ".join(f"{named[each.phase]} {plain(each.seconds)} s" for each in pieces if each.pool == pool)
        for pool in pools
    ]
    return Chart(drawing, f"A step of {plain(step)} s. {'; '.join(told)}.")
