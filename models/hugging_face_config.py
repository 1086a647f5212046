"""Reading the keys of a Hugging Face config.json, with one sentence for each that is missing or makes no sense."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from models.documents import shown
from models.hugging_face_defaults import CLASS_DEFAULTS, PUBLISHED_OTHERWISE
from models.schema import ModelFileError

ALIASES = (
    ("num_experts", "num_local_experts", "n_routed_experts"),
    ("num_experts_per_tok", "num_experts_per_token", "experts_per_token"),
    ("n_shared_experts", "num_shared_experts"),
    ("num_nextn_predict_layers", "num_mtp_layers"),
    ("hidden_size", "n_embd", "d_model", "n_embed"),
    ("num_hidden_layers", "n_layer", "n_layers"),
    ("num_attention_heads", "n_head", "n_heads"),
    ("num_key_value_heads", "num_attention_groups"),
    ("max_position_embeddings", "n_positions", "max_seq_len"),
)
"""Keys that mean the same: versions 4 and 5 of Hugging Face Transformers (`attribute_map` of its configurations) save
one model under different ones."""

_ALIASES_OF = {key: (key, *(each for each in group if each != key)) for group in ALIASES for key in group}

BIASES_WITHOUT_WEIGHTS = frozenset({"use_expert_bias", "use_moe_router_bias", "use_routing_bias"})
"""Switches of biases that are adjusted, not trained."""

LARGEST = 2**30
"""Largest number that is read; bounds of single fields are narrower, and checked with the model."""

_OF_CLASS = "the default of its configuration class"

NEVER_ZERO = frozenset(
    {
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "vocab_size",
        "mamba_expand",
        "intermediate_size",
        "block_ff_dim",
    }
)
"""Keys of which others are computed."""


class KeyedNumber(int):
    """A number of a file that remembers its key, for messages. Results of arithmetic do not."""

    key: str

    def __new__(cls, value: int, key: str) -> Self:
        """Return the number with its key."""
        found = super().__new__(cls, value)
        found.key = key
        return found


@dataclass(frozen=True)
class HuggingFaceConfig:
    """A config.json, or an object inside one. `null` counts as absent, as it does for its authors.

    `notes` collects what a reader of the model should know, such as values taken from defaults; `left_out` parts of the
    model that its `Architecture` has no place for.
    """

    content: Mapping[str, Any]
    where: str
    model_type: str
    inside: str = ""
    notes: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    keys_read: set[str] = field(default_factory=set)

    def refuse(self, reason: str) -> ModelFileError:
        """The error to raise for something that cannot be read or represented."""
        read_as = f"read as a Hugging Face config, model_type '{self.model_type}'"
        return ModelFileError(f"{self.where}: {reason} ({read_as}).")

    def has(self, *keys: str) -> bool:
        """Returns whether the document has any of the keys, or of their aliases."""
        return self._present(keys) is not None

    def get(self, *keys: str) -> Any:
        """Return the value of the first present key or alias, else None."""
        key = self._present(keys)
        return None if key is None else self._read(key)

    def whole(self, *keys: str, default: int | None = None) -> int:
        """Return the whole number under the first present key, else the default."""
        value = self.get(*keys)
        if value is None and default is not None:
            return default
        if value is None:
            raise self.refuse(f"key '{self._path(keys[0])}' is missing")
        for alias in _ALIASES_OF.get(self._present(keys) or "", ()):
            if self.content.get(alias) not in (None, value):
                one, other = self._path(self._present(keys) or keys[0]), self._path(alias)
                raise self.refuse(
                    f"'{one}' is {shown(value)} but '{other}', which means the same, is "
                    f"{shown(self.content[alias])}; keep one of them"
                )
        key = self._path(self._present(keys) or keys[0])
        least = 1 if NEVER_ZERO.intersection(keys) else 0
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
            raise self.refuse(f"'{key}' is {shown(value)}; it must be a whole number from {least} to {LARGEST:,}")
        return KeyedNumber(value, key)

    def usual(self, key: str, default: int) -> int:
        """A whole number, or the default of the family's configuration class, which is then noted."""
        return self.assumed(key, default, _OF_CLASS)

    def assumed(self, key: str, default: int, reason: str) -> int:
        """A whole number; where the file has no such key, the default, which is noted with its reason."""
        if not any(each in self.content for each in _ALIASES_OF.get(key, (key,))) and not self.has(key):
            self._note_assumed(key, f"{default:,}", reason)
        return self.whole(key, default=default)

    def flag(self, key: str, default: bool) -> bool:
        """A truth, or the default."""
        value = self._read(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.refuse(f"'{self._path(key)}' is {shown(value)}; it must be true or false")
        return value

    def number(self, key: str, default: float | None = None) -> float | None:
        """A number, or the default."""
        value = self._read(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.refuse(f"'{self._path(key)}' is {shown(value)}; it must be a number")
        return value

    def refuse_contradiction(self, one: str, first: Sequence[Any], other: str, second: Sequence[Any]) -> None:
        """Raise where two keys describe a layer differently.

        Args:
            one: a key.
            first: its word for each layer.
            other: another key.
            second: the word of `other` for each layer, from the same list as `first`.
        """
        for number, (mine, its) in enumerate(zip(first, second, strict=True), 1):
            if mine != its:
                raise self.refuse(
                    f"'{self._path(one)}' and '{self._path(other)}' contradict each other: layer {number} of "
                    f"{len(first)} is {shown(mine)} by the first and {shown(its)} by the second; correct or remove one"
                )

    def refuse_latent_biases(self) -> None:
        """Raise where products of latent attention have biases."""
        if self.flag("attention_bias", False):
            raise self.refuse("'attention_bias' is true; biases of latent attention cannot be represented")

    def refuse_unread_biases(self) -> None:
        """Raise where the file has biases that the family's reader did not ask for."""
        for key, value in self.content.items():
            if value is True and key.endswith("bias") and key not in self.keys_read | BIASES_WITHOUT_WEIGHTS:
                raise self.refuse(
                    f"'{self._path(key)}' is true; these biases are not covered for this family, only false is"
                )

    def part(self, key: str) -> HuggingFaceConfig:
        """Returns the object under a key; an empty one if missing."""
        value = self.content.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise self.refuse(f"'{self._path(key)}' is {shown(value)}; it must be an object with named keys")
        return HuggingFaceConfig(value or {}, self.where, self.model_type, self._path(key), self.notes, self.left_out)

    def items(self, key: str) -> list[Any] | None:
        """The list under a key, else `None`."""
        value = self.content.get(key)
        if value is not None and not isinstance(value, list):
            raise self.refuse(f"'{self._path(key)}' is {shown(value)}; it must be a list")
        return value

    def same_in_all(self, key: str, layers: int) -> int:
        """A whole number, also where it is listed once per layer, if it is the same in all."""
        value = self.content.get(key)
        if not isinstance(value, list):
            return self.whole(key)
        if len(value) != layers or any(each != value[0] for each in value):
            raise self.refuse(
                f"'{self._path(key)}' is {shown(value)}; it must be one number, or the same one for each of "
                f"{layers} layers"
            )
        return HuggingFaceConfig({key: value[0]}, self.where, self.model_type, self.inside).whole(key)

    def _class_default(self, key: str) -> int | bool | None:
        """Return the default of the family's configuration class; None where the file has the key or an alias."""
        if self.inside not in ("", "text_config") or any(each in self.content for each in _ALIASES_OF.get(key, (key,))):
            return None
        # a language model inside another file may be named by the whole
        named = self.model_type if self.model_type in CLASS_DEFAULTS else f"{self.model_type}_text"
        return CLASS_DEFAULTS.get(named, {}).get(key)

    def _read(self, key: str) -> Any:
        """Return the value of a key; where the file leaves it out, the family's default, which is noted."""
        default = self._class_default(key)
        if default is None:
            self.keys_read.add(key)
            return self.content.get(key)
        if key not in self.keys_read:
            self._note_assumed(key, str(default).lower() if isinstance(default, bool) else f"{default:,}", _OF_CLASS)
        self.keys_read.add(key)
        return default

    def _note_assumed(self, key: str, value: str, reason: str) -> None:
        published = PUBLISHED_OTHERWISE.get(self.model_type, {}).get(key)
        contrast = "" if published is None else f" {published}."
        self.notes.append(f"{key} is not in the file; {value} is assumed, {reason}.{contrast}")

    def rope_theta(self) -> float | None:
        """Base of the rotary embedding, wherever this version of the format keeps it."""
        parameters = self.part("rope_parameters")
        if parameters.has("full_attention"):
            parameters = parameters.part("full_attention")
        return self.number("rope_theta", parameters.number("rope_theta"))

    def leading(self, key: str, first: str, then: str, layers: int) -> int | None:
        """Returns the length of the leading run of `first` in a list of one word per layer, if all others are `then`;
        `None` without the list."""
        kinds = self.items(key)
        if kinds is None:
            return None
        count = next((place for place, kind in enumerate(kinds) if kind != first), len(kinds))
        if len(kinds) != layers:
            raise self.refuse(f"'{self._path(key)}' has {len(kinds)} entries for 'num_hidden_layers' {layers}")
        if any(kind != then for kind in kinds[count:]):
            raise self.refuse(
                f"'{self._path(key)}' has other than '{first}' followed by '{then}', the only pattern "
                "that can be represented"
            )
        return count

    def head_dim(self, hidden: int, heads: int) -> int:
        """Width of a head: as given, or the hidden width divided by the heads."""
        if self.has("head_dim"):
            return self.whole("head_dim")
        if heads == 0 or hidden % heads:
            raise self.refuse(
                f"'num_attention_heads' is {heads}, which does not divide 'hidden_size' {hidden}, and there is no "
                "'head_dim'"
            )
        return hidden // heads

    def windows(
        self, layers: int, window: int | None, every: int | None = None, stated_by: str | None = None
    ) -> dict[str, Any]:
        """The window, its kind and the full layers, from `layer_types` if there are any, else as the family has them.

        `every` is the family's own pattern: multiples of it, counted from 1, see everything; 0 for all layers.
        `stated_by` is the key that may state `every`; it must not contradict `layer_types`.
        """
        kinds = self.items("layer_types")
        if kinds is None:
            if window is None or every == 0:
                return {}
            return {"sliding_window": window, "full_attention_every": every}
        unknown = [kind for kind in kinds if kind not in ("full_attention", "sliding_attention", "chunked_attention")]
        if unknown:
            raise self.refuse(
                f"'{self._path('layer_types')}' has {shown(unknown[0])}; only full, sliding and chunked attention "
                "can be represented"
            )
        if len(kinds) != layers:
            raise self.refuse(
                f"'{self._path('layer_types')}' has {len(kinds)} entries for 'num_hidden_layers' {layers}"
            )
        full = [number for number, kind in enumerate(kinds, 1) if kind == "full_attention"]
        windowed = sorted(set(kinds) - {"full_attention"})
        if not windowed:
            return {}
        if window is None:
            raise self.refuse(f"'{self._path('layer_types')}' has windowed layers, but there is no window to give them")
        if stated_by is not None and self.content.get(stated_by) is not None:
            by_rule = [
                "full_attention" if every and number % every == 0 else windowed[0] for number in range(1, layers + 1)
            ]
            self.refuse_contradiction("layer_types", kinds, stated_by, by_rule)
        every = full[0] if full else None
        if len(windowed) > 1 or (every is not None and full != list(range(every, layers + 1, every))):
            raise self.refuse(
                f"'{self._path('layer_types')}' does not repeat with full attention in every n-th layer, "
                "which is the only pattern that can be represented"
            )
        kind = windowed[0].removesuffix("_attention")
        return {"sliding_window": window, "full_attention_every": every, "window_kind": kind}

    def _present(self, keys: tuple[str, ...]) -> str | None:
        """Return the first present key, else the first present alias."""
        every = (*keys, *(alias for key in keys for alias in _ALIASES_OF.get(key, ())))
        return next(
            (key for key in every if self.content.get(key) is not None or self._class_default(key) is not None), None
        )

    def _path(self, key: str) -> str:
        return f"{self.inside}.{key}" if self.inside else key
