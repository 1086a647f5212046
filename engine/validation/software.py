"""Facts about training software that a table of runs does not carry, inferred by stated rules.

The first rule whose pattern is found in "framework | source", ignoring case, sets the facts; rules on dates, precision,
hardware and notes refine them; a column of the same name in the table overrides all of these. No rule reads the model,
the name of a row or a measurement.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from engine.cost_models.calibrated import (
    ATTENTION_KERNELS,
    CONTEXT_EXCHANGES,
    DISPATCH_BYTES,
    DISPATCHERS,
    LAUNCHES,
    SOFTWARE_DEFAULTS,
)
from engine.validation.notes import COMPILED, apply_notes, remark, stating
from engine.validation.texts import Texts, compile_finder
from models import datatypes

__all__ = ["DEFAULTS", "RULES", "SOFTWARE_COLUMNS", "SoftwareRule", "find_rule", "infer_software", "release_year"]

GRADIENTS_16_BIT: dict[str, float | str] = {"gradient_bytes": 2.0, "shard_gradient_bytes": 2.0}
DEFAULTS: dict[str, float | str] = {**SOFTWARE_DEFAULTS, **GRADIENTS_16_BIT}
"""Facts without a matching rule: the defaults of an execution, except for the precision of the gradient exchange.

An execution without settings is a present one, with 32-bit gradients. A published run was tuned by its makers: the
recipes exchange gradients in 16 bits (fp16 training of the Megatron papers, NeMo's and Composer's performance
settings), and a rule names the exceptions.
"""
SOFTWARE_COLUMNS = tuple(DEFAULTS)
OTHER_WORDS = {"alltoall": "all_to_all", "allgather": "all_gather"}
"""Megatron's words for dispatchers, which tables of earlier versions have."""
WORDS = {
    "attention_kernel": ATTENTION_KERNELS,
    "launch": LAUNCHES,
    "token_dispatcher": DISPATCHERS,
    "context_par_comm": CONTEXT_EXCHANGES,
}
FIELD_OF_FACT = {"dispatch_bytes": "dispatch_datatype", "busiest_load": "expert_imbalance"}
"""Facts that a table may also state as the field of an execution, in its words and units."""
MATURING = r"\bNeMo\b|Megatron|PaXML"
"""Stacks whose own kernels (Transformer Engine) matured with the generation's programming model."""
GENERATION_YEAR = {"hopper": 2022.8}
"""When a generation's first systems shipped. Only Hopper has runs over enough years to see software mature."""


@dataclass(frozen=True, slots=True)
class SoftwareRule:
    """Facts of a family of frameworks: `pattern` is searched in "framework | source"; `why` names the evidence."""

    name: str
    pattern: str
    why: str
    facts: dict[str, float | str] = field(default_factory=dict)


EAGER: dict[str, float | str] = {"overlap_data": 1.0, "unfused_elementwise": 1.0, "launch": "eager"}
NVIDIA: dict[str, float | str] = {"overlap_data": 1.0, "overlap_tensor": 1.0, "overlap_pipeline": 1.0}
PYTORCH: dict[str, float | str] = {"attention_kernel": "flash2", "pytorch_native": 1.0, "shard_gradient_bytes": 4.0}
RULES: tuple[SoftwareRule, ...] = (
    SoftwareRule(
        "vTrain", r"vTrain", "Megatron-LM of 2022; the paper states no overlap", {"attention_kernel": "unfused"}
    ),
    SoftwareRule(
        "Megatron with DeepSpeed ZeRO-3",
        r"Megatron-LM ?\+ ?DeepSpeed",
        "ZeRO-3 of 2021 gathers tensor by tensor without prefetch: twelve tensors per block; a third of the network "
        "rate chosen on six rows",
        {"gather_calls": 12.0, "gather_efficiency": 1.0 / 3.0},
    ),
    SoftwareRule(
        "DeepSpeed pipeline",
        r"Megatron-DeepSpeed|DeepSpeed ?\+ ?Megatron|MT-NLG|BigScience",
        "the pipeline engine sends and receives whole tensors in separate, blocking steps; gradients are 32-bit",
        {"gradient_bytes": 4.0, "split_messages": 0.0, "messages": 4.0},
    ),
    SoftwareRule(
        "Megatron-Bridge",
        r"Megatron-Bridge",
        "performance recipes: grad_reduce_in_fp32 is False for every model, and recipes of 8 bits gather 8 bits",
        {**NVIDIA, "fp8_parameters": 1.0},
    ),
    SoftwareRule("NeMo AutoModel", r"AutoModel", "PyTorch FSDP2 with Hugging Face models", {**EAGER, **PYTORCH}),
    SoftwareRule(
        "PaXML",
        r"PaXML",
        "XLA's own kernels for norms and activations, FlashAttention 2",
        {**NVIDIA, "attention_kernel": "flash2", "unfused_elementwise": 1.0},
    ),
    SoftwareRule("NeMo", r"\bNeMo\b|dgxc", "distributed optimizer and overlap on in the performance recipes", NVIDIA),
    SoftwareRule(
        "Composer",
        r"llm-foundry|Composer",
        "FlashAttention of the 1.x generation: fitted alone, these rows want its rates",
        {**EAGER, "attention_kernel": "flash1"},
    ),
    SoftwareRule(
        "torchtitan",
        r"torchtitan",
        "FlashAttention 2 through PyTorch, 32-bit gradient reduction, compiled on request",
        {**EAGER, **PYTORCH},
    ),
    SoftwareRule(
        "Hugging Face",
        r"\bHF\b|Hugging ?Face|transformers|Accelerate",
        "plain Llama modules",
        {**EAGER, "attention_kernel": "flash2", "unfused_elementwise": 2.0},
    ),
    SoftwareRule(
        "HAI-LLM",
        r"HAI-LLM",
        "DeepSeek-V3 (arXiv:2412.19437, sections 3.2 and 3.3): tokens are forwarded from InfiniBand to NVLink, leave "
        "in 8 bits with a 32-bit scale per 128 elements; moments in 16 bits; 8 bits kept for backward; messages "
        "between stages are hidden",
        {
            "token_dispatcher": "deepep",
            "dispatch_bytes": DISPATCH_BYTES["float8"],
            "kept_bytes": 1.0,
            "moment_bytes": 2.0,
            "overlap_pipeline": 1.0,
            # Figure 6: weights of products are cast to FP8 from the 32-bit master weights.
            "fp8_parameters": 1.0,
        },
    ),
    SoftwareRule("Megatron", r"Megatron|MegaScale|Primus", "defaults; no overlap unless notes name its options"),
    SoftwareRule(
        "JAX", r"\bJAX\b|MaxText|\bXLA\b", "compiled by XLA, with overlap", {"overlap_data": 1.0, "launch": "graphs"}
    ),
    SoftwareRule("PyTorch", r"FSDP|PyTorch", "plain modules, FlashAttention 2 through PyTorch", {**EAGER, **PYTORCH}),
    SoftwareRule(
        "DeepSpeed", r"DeepSpeed", "plain modules with FlashAttention 2", {**EAGER, "attention_kernel": "flash2"}
    ),
)
FUSED_ATTENTION_YEAR = 2023.0
"""From when training stacks had FlashAttention: Megatron-LM and PyTorch took it up in the first months of 2023."""
CUDNN_ATTENTION_YEAR = 2024.25
"""From when NVIDIA's stack runs cuDNN's attention on Hopper: NeMo 24.05. With FlashAttention 2 before, unseen halves of
the eight runs of 24.01 are 3.8 % off instead of 6.2."""
GROUPED_EXPERTS_YEAR = 2026.25
"""From when NVIDIA's stacks quantise all experts in one launch: identical configurations in successive releases of
Megatron-Bridge got two times faster in 26.04."""

FP8_PARAMETERS_YEAR = 2024.7
"""From when NeMo's recipes hold parameters in 8 bits: NeMo 2 in release 24.09, `fp8_params` in
`llm/recipes/precision/mixed_precision.py`."""


def release_year(framework: str, date: str) -> float:
    """Returns the year with fraction of a software release, from its version ("NeMo 24.12") or the run's date; NaN if
    neither.

    Args:
        framework: name and version, as the run has them.
        date: of the run or the release, as the run has it.
    """
    version = re.search(r"(?i)(?:NeMo|Bridge) v?(\d\d)\.(\d\d)", framework) or re.match(r"v?(2\d)\.(\d\d)", date)
    if version:
        return 2000 + int(version[1]) + (int(version[2]) - 0.5) / 12
    month = re.search(r"(20\d\d)-(\d\d)", date)
    if month:
        return int(month[1]) + (int(month[2]) - 0.5) / 12
    year = re.match(r"(20\d\d)$", date)
    return int(year[1]) + 0.5 if year else float("nan")


def find_rule(text: str) -> SoftwareRule | None:
    """Return the first rule whose pattern is found in words for a framework and a source; None without one.

    Args:
        text: such as "NeMo 24.12 | NVIDIA dgxc-benchmarking".
    """
    return next((rule for rule in RULES if compile_finder(rule.pattern)(text)), None)


def infer_software(
    runs: pd.DataFrame, generation: npt.NDArray[np.object_]
) -> tuple[dict[str, npt.NDArray[np.float64]], npt.NDArray[np.object_], list[str], list[list[str]]]:
    """Returns the software facts of every row as numbers, the name of the rule that set them, a fault per row (""
    where a given fact can be read), and remarks on what notes state.

    Args:
        runs: typed runs (see `engine.validation.reading`), with further columns of software facts where given.
        generation: accelerator generation of every row.

    Returns:
        Arrays [rows] by the names of `SOFTWARE_COLUMNS`; the rules [rows]; the faults [rows]; the remarks [rows].
    """
    text = {name: Texts(runs[name]) for name in ("framework", "source", "notes", "date", "dtype")}
    if "cuda_graph" in runs:
        text["cuda_graph"] = Texts(runs["cuda_graph"])
    frameworks, sources = text["framework"].rows, text["source"].rows
    where = Texts(f"{framework} | {source}" for framework, source in zip(frameworks, sources, strict=True))
    rules = [find_rule(each) for each in where.different]
    facts = {
        name: where.each((rule.facts.get(name, usual) if rule else usual for rule in rules), np.object_)
        for name, usual in DEFAULTS.items()
    }
    named = where.each((rule.name if rule else "default" for rule in rules), np.object_)
    remarks: list[list[str]] = [[] for _ in frameworks]
    _refine_facts(facts, text, generation, named, remarks)
    faults = _override_facts(facts, runs)
    for name, words in WORDS.items():
        place = {word: float(number) for number, word in enumerate(words)}
        facts[name] = np.array([place[word] for word in facts[name]], object)
    return {name: facts[name].astype(np.float64) for name in SOFTWARE_COLUMNS}, named, faults, remarks


def _refine_facts(
    facts: dict[str, npt.NDArray[Any]],
    text: Mapping[str, Texts],
    generation: npt.NDArray[np.object_],
    named: npt.NDArray[np.object_],
    remarks: list[list[str]],
) -> None:
    """Rules on dates, precision, hardware and notes, in place."""

    def noted(pattern: str, column: str = "notes") -> npt.NDArray[np.bool_]:
        return text[column].saying(pattern)

    dates = text["date"]
    years = np.array([release_year(f, d) for f, d in zip(text["framework"].rows, dates.rows, strict=True)], np.float64)
    native = np.asarray(facts["attention_kernel"] == "native", bool)
    facts["attention_kernel"][native & (years < FUSED_ATTENTION_YEAR)] = "unfused"
    # No kernel written for Ampere is faster than FlashAttention 2.
    ampere = np.asarray(generation == "ampere", bool)
    facts["attention_kernel"][native & ampere & ~(years < FUSED_ATTENTION_YEAR)] = "flash2"
    # NeMo's releases up to 24.03 took FlashAttention 2 on Hopper, later ones the kernels of cuDNN.
    early_nemo = np.asarray(named == "NeMo", bool) & noted(r"\bNeMo\b", "framework") & (years < CUDNN_ATTENTION_YEAR)
    facts["attention_kernel"][native & early_nemo & np.asarray(generation == "hopper", bool)] = "flash2"
    # Megatron-LM's arguments turn 32-bit gradient exchange on with bfloat16, and leave it off with float16.
    megatron = np.asarray(named == "Megatron", bool)
    facts["gradient_bytes"][megatron & ~noted(r"(?<!b)f(?:p|loat)16|half", "dtype")] = 4.0
    # PyTorch compiles on request; its 8-bit layers are made for compilation.
    stated, denied = stating(text["notes"], COMPILED)
    stated |= stating(text["notes"], "float8")[0] & ~denied
    pytorch = np.isin(named.astype(str), ("PyTorch", "torchtitan"))
    compiled = pytorch & ~denied & (stated | noted(r"fp8|float8", "dtype"))
    facts["launch"][compiled] = "compiled"
    facts["unfused_elementwise"][compiled] = 0.0
    remark(remarks, pytorch & stated, "read from notes: compilation")
    remark(remarks, pytorch & denied, "read from notes: no compilation")
    apply_notes(facts, text["notes"], remarks)
    if "cuda_graph" in text:  # the scope as recipes of the release state it
        facts["launch"][noted(r"^full_iteration$", "cuda_graph")] = "graphs"
        facts["launch"][noted(r"\battn\b", "cuda_graph")] = "partial_graphs"
    maturing = noted(MATURING, "framework")
    facts["grouped_experts"][maturing & (years < GROUPED_EXPERTS_YEAR)] = 0.0
    nemo = np.asarray(named == "NeMo", bool) & noted(r"\bNeMo\b", "framework")
    facts["fp8_parameters"][nemo & (years >= FP8_PARAMETERS_YEAR)] = 1.0
    # BigScience set CUDA_LAUNCH_BLOCKING=1 until 2022-02-28 against hangs.
    early = dates.each((date < "2022-02-28" for date in dates.different), np.bool_)
    facts["launch"][noted(r"BigScience tr11 prequel", "source") & early] = "blocking"
    launched = np.array([GENERATION_YEAR.get(str(name), np.nan) for name in generation], np.float64)
    age = np.where(maturing, years - launched, np.nan)
    facts["age_years"] = np.where(np.isfinite(age), np.maximum(age, 0.0), np.inf)


def _override_facts(facts: dict[str, npt.NDArray[Any]], runs: pd.DataFrame) -> list[str]:
    """Facts given as columns of the table, in place; a sentence for each that cannot be read."""
    faults = [""] * len(runs)
    for name in (*FIELD_OF_FACT.values(), *SOFTWARE_COLUMNS):
        if name not in runs:
            continue
        fact = next((fact for fact, field_name in FIELD_OF_FACT.items() if field_name == name), name)
        for position, value in enumerate(runs[name]):
            word = "" if value is None or value != value else str(value).strip()
            if word == "":
                continue
            try:
                facts[fact][position] = _parse_fact(name, word)
            except ValueError as problem:
                faults[position] = str(problem)
    return faults


def _parse_fact(name: str, word: str) -> float | str:
    if name in WORDS:
        word = OTHER_WORDS.get(word, word)
        if word not in WORDS[name]:
            raise ValueError(f"{name} is {word[:40]!r}; it must be one of {', '.join(WORDS[name])}")
        return word
    if name == "dispatch_datatype":
        spelled = datatypes.spelled("runs", word)
        sent = spelled.name if spelled else word
        if sent not in DISPATCH_BYTES:
            raise ValueError(f"{name} is {word[:40]!r}; it must be one of {', '.join(DISPATCH_BYTES)}")
        return DISPATCH_BYTES[sent]
    lowered = word.lower()
    if lowered in ("true", "false"):
        return float(lowered == "true")
    try:
        value = float(word)
    except ValueError:
        raise ValueError(f"{name} is {word[:40]!r}, which is not a number") from None
    if np.isnan(value) or value < 0:
        raise ValueError(f"{name} is {word[:40]}; it must be at least 0")
    if name == "unfused_elementwise" and value not in (0.0, 1.0, 2.0):
        raise ValueError(f"{name} is {word[:40]}; it must be 0 (fused), 1 (eager) or 2 (plain with upcasts)")
    if name == "expert_imbalance":
        if value < 100.0:
            raise ValueError(f"{name} is {word[:40]} %; the busiest expert rank has at least the mean, 100 %")
        return value / 100.0
    if name == "busiest_load" and value < 1.0:
        raise ValueError(f"{name} is {word[:40]}; the busiest expert rank has at least the mean, 1")
    if name in ("gather_calls", "gather_efficiency") and value == 0:
        raise ValueError(f"{name} is 0; it must be above 0")
    return value
