"""Classes of kernels, by name: communication, attention, products and other work.

A name contains other names: template arguments and namespaces make plain searches wrong (`lamb` is in `lambda`,
`gemm` in `fbgemm_gpu`). So a rule looks at the head of a name, up to its first `<` or `(`; rules marked `inside` look
at all of it, for kernels whose head is only a wrapper. The rules are rows of `kernel_classes.csv`; the first that
fits counts.

Source: names in published traces of PyTorch, Megatron-LM, vLLM and TensorRT-LLM, one example per rule.
"""

from __future__ import annotations

import csv
import re
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final, NamedTuple

__all__ = ["CLASSES", "MATRIX_CLASSES", "KernelRule", "class_of_copy", "class_of_kernel", "list_rules"]

CLASSES: Final = (
    "comm",
    "attention",
    "grouped_gemm",
    "conv",
    "gemm",
    "norm",
    "softmax_loss",
    "foreach",
    "elementwise",
    "moe_other",
    "reduce_sort",
    "embedding",
    "other",
    "memcpy",
    "memset",
)
"""Classes of work on a device."""
MATRIX_CLASSES: Final = ("gemm", "conv", "grouped_gemm")
"""Classes of products."""


class KernelRule(NamedTuple):
    """A rule: its class, its expression, True if it looks at the whole name, and a kernel that it fits."""

    kernel_class: str
    pattern: re.Pattern[str]
    is_inside: bool
    example: str


@cache
def list_rules() -> tuple[KernelRule, ...]:
    """Return the rules in their order."""
    text = files("engine.traces").joinpath("kernel_classes.csv").read_text(encoding="utf-8")
    return tuple(
        KernelRule(row["kernel_class"], re.compile(row["pattern"]), row["inside"] == "yes", row["example"])
        for row in csv.DictReader(text.splitlines())
    )


def head_of(name: str) -> str:
    """Return the head of a kernel's name: without return type and anonymous namespaces, up to its first `<` or `(`.

    Args:
        name: of the kernel, as the profiler writes it.
    """
    plain = name.removeprefix("void ").replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
    return re.split(r"[<(]", plain, maxsplit=1)[0]


@lru_cache(maxsize=65_536)
def class_of_kernel(name: str) -> str:
    """Return the class of a kernel, "other" if no rule fits.

    Args:
        name: of the kernel, as the profiler writes it.
    """
    head = head_of(name)
    if head in ("std::enable_if", "decltype"):
        # The return type is a template: the name follows it.
        head = head_of(re.sub(r"^[^ ]*<.*?>::type ", "", name.removeprefix("void ")))
    for rule in list_rules():
        if rule.pattern.search(name if rule.is_inside else head):
            return rule.kernel_class
    return "other"


def class_of_copy(name: str, is_fill: bool) -> str:
    """Return the class of a copy or a fill; copies between devices are communication.

    Args:
        name: of the event.
        is_fill: True for events of the category of fills.
    """
    if is_fill or name.startswith("Memset"):
        return "memset"
    return "comm" if "PtoP" in name else "memcpy"
