"""Every colour of the charts with its meaning.

A colour has one meaning in the whole interface: the blue-teal ramp says how good a value is, ten categorical colours
name kinds of time and of memory, brown against teal says worse against better, and hatching marks the unusable (does
not fit, idle). Nothing else is coloured.

Source of the choice: lightness of the ramps is monotone and the smallest OKLab distance between two kinds stays at or
above 0.087 for deuteranopia, protanopia and tritanopia, simulated after Machado, Oliveira and Fernandes (2009), "A
Physiologically-based Model for Simulation of Color Vision Deficiency", IEEE TVCG 15(6).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from engine.columns import EXTENSION_STATISTICS, statistics_of

Mode = Literal["light", "dark"]

LEGIBLE: Final = 4.5
"""The contrast that text has at least (WCAG 2.2, 1.4.3)."""


@dataclass(frozen=True, slots=True)
class Palette:
    """The colours of one mode."""

    mode: Mode
    background: str
    """Page background."""
    text: str
    muted: str
    """Ticks, notes, axis titles; at least 4.5:1 on the background."""
    grid: str
    """Grid lines and faint rails."""
    panel: str
    """Ground of the hatch and of bands."""
    accent: str
    """Links and the one thing on a chart that is selected."""
    sequential: tuple[str, ...]
    """Ten stops from worst to best; the best is farthest from the background."""
    diverging: tuple[str, ...]
    """Ten stops from worse to better around no change."""

    @property
    def worse(self) -> str:
        """Colour of text and lines for worse values; also of capacity lines."""
        return self.diverging[0]

    @property
    def better(self) -> str:
        """Colour of text and lines for better values."""
        return self.diverging[-1]

    def ramp(self, position: float) -> str:
        """Returns the sequential colour at `position` in 0 (worst) to 1 (best); positions outside are clipped."""
        return _interpolate_colour(self.sequential, position)

    def label_on_ramp(self, position: float) -> str:
        """Returns the text colour that is legible on `ramp(position)`."""
        return self.ink_on(self.ramp(position))

    def ink_on(self, fill: str) -> str:
        """Returns the text colour that is legible on a fill: the page's own, or black or white where neither is."""
        for inks in ((self.background, self.text), ("#000000", "#FFFFFF")):
            ink = max(inks, key=lambda each: contrast(each, fill))
            if contrast(ink, fill) >= LEGIBLE:
                break
        return ink

    def diverge(self, position: float) -> str:
        """Returns the diverging colour at `position` in -1 (much worse) to 1 (much better)."""
        return _interpolate_colour(self.diverging, (position + 1) / 2)

    def hatch(self, size: int = 7, opacity: float = 0.45) -> dict[str, Any]:
        """Returns the Plotly pattern that marks the unusable: infeasible or idle."""
        return {
            "shape": "/",
            "size": size,
            "solidity": 0.16,
            "fgcolor": self.muted,
            "bgcolor": self.panel,
            "fgopacity": opacity,
        }

    def hatch_some(self, which: Sequence[bool], size: int = 7, opacity: float = 0.45) -> dict[str, Any]:
        """Returns the Plotly pattern that hatches some marks of a trace; give those the colour `muted` as well."""
        pattern = self.hatch(size, opacity)
        del pattern["bgcolor"]
        return {**pattern, "shape": ["/" if flag else "" for flag in which]}

    def colorscale(self, reverse: bool = False) -> list[list[float | str]]:
        """Returns the sequential ramp as a Plotly colour scale."""
        stops = self.sequential[::-1] if reverse else self.sequential
        return [[index / (len(stops) - 1), colour] for index, colour in enumerate(stops)]


LIGHT: Final = Palette(
    mode="light",
    background="#FFFFFF",
    text="#1B2430",
    muted="#66707D",
    grid="#E6EAEE",
    panel="#F7F8FA",
    accent="#1F5FA8",
    sequential=(
        "#E9F8F0",
        "#BEE4D8",
        "#90CFC8",
        "#61B9BE",
        "#429FB4",
        "#2F84A8",
        "#2A6999",
        "#284F82",
        "#21376A",
        "#162152",
    ),
    diverging=(
        "#8C3A0B",
        "#B95E1D",
        "#DB8A47",
        "#EFBB8B",
        "#F8E4D0",
        "#DCEBEC",
        "#A9D0D3",
        "#6AAFB7",
        "#33859A",
        "#1C5A78",
    ),
)

DARK: Final = Palette(
    mode="dark",
    background="#11151C",
    text="#E4E9F0",
    muted="#9AA5B3",
    grid="#262E3A",
    panel="#161B24",
    accent="#7FB2F0",
    sequential=(
        "#1E2735",
        "#253B53",
        "#25536F",
        "#1B6C87",
        "#278697",
        "#41A0A3",
        "#63B8AE",
        "#8CCFB9",
        "#BAE3C5",
        "#E7F6DA",
    ),
    diverging=(
        "#F3A76B",
        "#D98245",
        "#B1622F",
        "#7D4726",
        "#43301F",
        "#1F333B",
        "#245463",
        "#2E7C8C",
        "#4BA5B3",
        "#86CDD6",
    ),
)


def palette(mode: str) -> Palette:
    """Returns the palette of "light" or "dark"; anything else counts as light."""
    return DARK if mode == "dark" else LIGHT


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of time or of memory: its name, the statistics that it sums, its colour in both modes."""

    key: str
    name: str
    statistics: tuple[str, ...]
    light: str | None
    """Colour in light mode; None is drawn hatched."""
    dark: str | None

    def colour(self, colours: Palette) -> str | None:
        """Returns the colour in the given mode, None where the kind is hatched."""
        return self.dark if colours.mode == "dark" else self.light

    def label(self, colours: Palette) -> str:
        """Returns the colour of text on this kind's colour."""
        fill = self.colour(colours)
        return colours.text if fill is None else colours.ink_on(fill)


TIME_KINDS: Final[tuple[Kind, ...]] = (
    Kind("forward", "Forward", ("fw_time",), "#57B3F5", "#6DBEFB"),
    Kind("backward", "Backward", ("bw_time",), "#05499C", "#3A66C4"),
    Kind("optimizer", "Optimizer step", ("optim_step_time",), "#9B61D1", "#9380E9"),
    Kind("recompute", "Recompute", ("recompute_time",), "#417F6F", "#53AF95"),
    Kind("bubble", "Pipeline bubble", ("bubble_time",), None, None),
    Kind("tensor", "TP comm., exposed", ("tp_comm_exposed_time", "recomm_exposed_time"), "#F0C466", "#F0BC3B"),
    Kind("pipeline", "PP comm., exposed", ("pp_comm_exposed_time",), "#E07B14", "#E87832"),
    Kind("data", "DP comm., exposed", ("dp_comm_exposed_time",), "#9F2506", "#C25239"),
    Kind("offload", "Offload, exposed", ("fw_offload_exposed_time", "bw_offload_exposed_time"), "#D091A3", "#9A678A"),
    Kind("context", "CP comm., exposed", ("cp_comm_exposed_time",), "#663857", "#802653"),
    Kind("expert", "EP comm., exposed", ("ep_comm_exposed_time",), "#4C1C04", "#FAEFBB"),
    Kind("overhead", "Host and stragglers", ("overhead_time",), None, None),
)
"""The parts of a step, in the order of the waterfall; together they sum to the step time. The last three are
not parts of every cost model."""

MEMORY_KINDS: Final[tuple[Kind, ...]] = (
    Kind("weights", "Weights", ("weight_space",), "#383D48", "#D4DFEC"),
    Kind("optimizer", "Optimizer state", ("optimizer_space",), "#9B61D1", "#9380E9"),
    Kind("weight_gradients", "Weight gradients", ("weight_grad_space",), "#05499C", "#3A66C4"),
    Kind("activations", "Activations", ("act_space",), "#57B3F5", "#6DBEFB"),
    Kind("checkpoints", "Checkpoints", ("act_checkpoint_size",), "#417F6F", "#53AF95"),
    Kind("activation_gradients", "Activation gradients", ("act_grad_space",), "#BEDEF2", "#2B4668"),
    Kind("logits", "Logits", ("logit_space",), "#CC4B0A", "#CC4B0A"),
    Kind("temporaries", "Temporaries", ("temporary_space",), "#D091A3", "#9A678A"),
    Kind("reserve", "Reserve", ("reserve_space",), "#CCC499", "#66594D"),
)
"""The parts of a GPU's memory, in the order of the stack. The last three are not parts of every cost model."""

_EXTENDED: Final = {column.name for column in EXTENSION_STATISTICS}


def kinds_of(kinds: tuple[Kind, ...], cost_model: str) -> tuple[Kind, ...]:
    """Returns the `TIME_KINDS` or `MEMORY_KINDS` that a cost model distinguishes."""
    there = {column.name for column in statistics_of(cost_model)}
    return tuple(kind for kind in kinds if there & set(kind.statistics))


def common_kinds(kinds: tuple[Kind, ...]) -> tuple[Kind, ...]:
    """Returns the `TIME_KINDS` or `MEMORY_KINDS` that every cost model distinguishes."""
    return tuple(kind for kind in kinds if not _EXTENDED & set(kind.statistics))


SCENARIOS: Final[dict[Mode, tuple[str, ...]]] = {
    "light": ("#162152", "#B95E1D", "#429FB4", "#9B61D1"),
    "dark": ("#E7F6DA", "#E87832", "#2F8FA3", "#A78BFA"),
}
"""Colours of scenarios A to D in a shared plot, always with a distinct mark, dash and name. The smallest OKLab distance
is 0.095 in light and 0.132 in dark mode for the deficiencies named above; all reach 3:1."""


def _interpolate_colour(stops: tuple[str, ...], position: float) -> str:
    """Return the colour at `position` in 0 to 1 along evenly spaced `stops`, linear in sRGB as Plotly does it."""
    place = min(max(position, 0.0), 1.0) * (len(stops) - 1)
    index = min(int(place), len(stops) - 2)
    share = place - index
    low, high = colour_channels(stops[index]), colour_channels(stops[index + 1])
    mixed = (round(a + (b - a) * share) for a, b in zip(low, high, strict=True))
    return "#" + "".join(f"{channel:02X}" for channel in mixed)


def colour_channels(colour: str) -> tuple[int, int, int]:
    """Returns red, green and blue [0 to 255] of "#RRGGBB"."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def contrast(first: str, second: str) -> float:
    """Returns the contrast ratio of two colours, 1 to 21 (WCAG 2.2, definition of contrast ratio)."""
    bright, dim = sorted((_relative_luminance(first), _relative_luminance(second)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def _relative_luminance(colour: str) -> float:
    shares = [channel / 255 for channel in colour_channels(colour)]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
