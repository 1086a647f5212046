"""A whole scenario as a short text for a link, and back.

text = version + base64url(zlib with a preset dictionary(compact JSON))

A model or system that a library holds unchanged is packed as its name, an edited copy as the name of the original and
the changed values, anything else whole. A check of the scenario's content hash shows whether a library has changed in
between. Reading is bounded before and after decompression and never trusts its input.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import hardware
import models
from dashboard.link.document_validation import PROBLEMS, Refused, parse, scenario_of, sentence
from dashboard.link.text_encoding import LONGEST, folded, unfolded
from engine import Scenario
from engine.cost_models.registry import cost_model_of
from engine.executions.frameworks.registry import ANY
from engine.scenarios.scenario import FORMAT
from models.documents import DocumentError, shown

__all__ = ["LONGEST", "Unpacked", "packed", "unpacked"]

_WHERE: Final = "The link's scenario"
_DAMAGED: Final = "The link's scenario is damaged: it is not a complete copy of a shared link."
_NAME: Final = re.compile(r"\w[\w.+@-]{0,100}")

_PRESET: Final = (
    b'"prediction_layers":,"params_active_published_b":,"leading_dense_layers":,"norm_topk":,"shared_ffn":,"top_k":,'
    b'"routed":,"experts":{"assumptions":[{"field":"networks.*.processor_usage","basis":"Calculon\'s H100 file"},'
    b'"usd_source":"","usd_per_h":[],"clock_ghz":,"multiprocessors":,"tfloat32_tflops":,"tdp_w":,"generation":"",'
    b'"accelerator":{"name":"","unverified_fields":["architecture.",": recalled"],"notes":[],"derived_from":"",'
    b'"changes":[{"field":"networks.0.bandwidth_gb_per_s","old":,"new":}],"seq_size_basis":"","max_seq":2048,'
    b'"params_published_b":,"rope_theta":,"positions":"rotary","learned","tied_embeddings":false,"vocab_padded":,'
    b'"vocab":,"norm":"LayerNorm","RMSNorm","gated_mlp":true,"qk_norm":false,"linear_bias":true,"qkv_bias":true,'
    b'"head_dim":128,"kv_heads":8,"heads":,"layers":,"ffn":,"architecture":{"hidden":'
    b'{"format":"shardscape-system/1","name":"h100","title":"","source":"a Calculon system file","matrix":{"float8":'
    b'{"tflops":2000.0,"gflops_efficiency":[[128.0,0.95],[16.0,0.9],[1.0,0.6],[0.0,0.1]]},"float16":{"tflops":1000.0,'
    b'"gflops_efficiency":[[128.0,0.95],[16.0,0.9],[1.0,0.6],[0.0,0.1]]}},"vector":{"float8":{"tflops":120.0,'
    b'"gflops_efficiency":[[16.0,0.95],[1.0,0.5],[0.0,0.1]]},"bfloat16":"float32":}},"mem1":{"capacity_gib":80.0,'
    b'"bandwidth_gb_per_s":3072.0,"mb_efficiency":[[100.0,0.9],[10.0,0.75],[1.0,0.6],[0.0,0.3]]},"mem2":{'
    b'"capacity_gib":512.0,"bandwidth_gb_per_s":450.0,"mb_efficiency":[[100.0,0.95],[10.0,0.9],[1.0,0.7],[0.0,0.3]]},'
    b'"processing_mode":"no_overlap","roofline","networks":[{"bandwidth_gb_per_s":450.0,"efficiency":0.65,"size":8,'
    b'"latency_s":1e-05,"operations":{"p2p":{"scalar":1.0,"offset":null},"reduce_scatter":{"scalar":1.0,"offset":0.0},'
    b'"all_gather":{"scalar":1.0,"offset":0.0},"all_reduce":{"scalar":1.0,"offset":1.0}},"must_be_filled":true,'
    b'"processor_usage":0.15},{"bandwidth_gb_per_s":50.0,"efficiency":0.9,"size":65536,"latency_s":2e-05,"operations":'
    b'{"must_be_filled":false,"processor_usage":0.02}],'
    b'{"format":"shardscape-model/1","name":"","title":"","family":"","source":"a Calculon application file",'
    b'"seq_size":2048,"hidden":12288,"feedforward":49152,"attn_heads":96,"attn_size":128,"num_blocks":96,'
    b'"limits":{"tensor_par":[1,2,4,8],"pipeline_par":{"min":1,"max":8},"data_par":,"microbatch_size":,"batch_size":,'
    b'"weight_offload":[false],"activations_offload":[false],"optimizer_offload":[false],"fused_activation":[true],'
    b'"activation_recompute":["none","attn_only","full"],"uneven_pipelines":true,"tensor_par_net":,"pipeline_par_net":,'
    b'{"format":"shardscape-scenario/1","key":"","model":{"of":"gpt3-175B","name":"","title":"","set":{"num_procs":512,'
    b'"max_batch_size":512,"datatype":"float16","limits":{},"system":{"of":"h100_80g_nvl8","set":{"mem1.capacity_gib":'
)
"""Words that packed scenarios are likely to hold, likeliest last. Part of the format: who changes it raises the
version."""


class Unpacked(NamedTuple):
    """A scenario out of a link, and a sentence where it is not quite the one that was sent."""

    scenario: Scenario
    problem: str = ""


def packed(scenario: Scenario) -> str:
    """Returns the scenario as a text of letters, digits, - and _; `unpacked` gives an equal one."""
    model = _shorten_document(scenario.model, models.load, models.edited, models.to_document)
    system = _shorten_document(scenario.system, hardware.load, hardware.edited, hardware.to_document)
    document: dict[str, Any] = {"format": FORMAT}
    if "of" in model or "of" in system:
        document["key"] = scenario.key[:8]
    document |= {"model": model, "num_procs": scenario.num_procs, "max_batch_size": scenario.max_batch_size}
    document |= {"datatype": scenario.datatype, "limits": scenario.field_limits, "system": system}
    if not cost_model_of(scenario).columns.unnamed:
        document["cost_model"] = scenario.cost_model
    if scenario.calibration is not None:
        document["calibration"] = _short_calibration(scenario.calibration)
    if scenario.attention is not None:
        document["attention"] = scenario.attention
    if scenario.framework != ANY:
        document["framework"] = scenario.framework
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return folded(text, _PRESET)


def _shorten_document(
    thing: Any, load: Callable[[str], Any], edited: Callable[..., Any], whole: Callable[[Any], dict[str, Any]]
) -> dict[str, Any]:
    """A model or system in as few words as give exactly the same again."""
    if found := _library_reference(thing.name, load, thing):
        return found
    document = whole(thing)
    if not thing.derived_from:
        return document
    short: dict[str, Any] = {"of": thing.derived_from, "name": thing.name, "title": thing.title}
    short["set"] = {change.field: _changed_value(document, change) for change in thing.changes}
    try:
        return short if _build_from_short(short, load, edited) == thing else document
    except (DocumentError, Refused):
        return document


def _short_calibration(calibration: hardware.Calibration) -> dict[str, Any]:
    """A calibration without the values that it shares with the library's one it was made from."""
    if found := _library_reference(calibration.name, hardware.load_calibration, calibration):
        return found
    document = hardware.calibration_document(calibration)
    base = _calibration_parameters(calibration.derived_from)
    own = {name: value for name, value in document["parameters"].items() if base.get(name) != value}
    shared = base.keys() - document["parameters"].keys()
    return document if not base or shared else {**document, "parameters": own, "rest": calibration.derived_from}


def _calibration_parameters(name: str) -> dict[str, Any]:
    """The values of a calibration of the library; none where there is no such."""
    if _NAME.fullmatch(name) is None or name.endswith(".json"):
        return {}
    try:
        found: dict[str, Any] = hardware.calibration_document(hardware.load_calibration(name))["parameters"]
        return found
    except DocumentError:
        return {}


def _whole_calibration(short: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document that a short one stands for. Raises a `DocumentError`, or `Refused`."""
    if "of" in short:
        name = short["of"]
        if len(short) > 1 or not isinstance(name, str) or _NAME.fullmatch(name) is None or name.endswith(".json"):
            raise Refused(f"{_WHERE} names {shown(name)}, which is not a name of a library.")
        return hardware.calibration_document(hardware.load_calibration(name))
    own, rest = short.get("parameters"), short.get("rest")
    if rest is None or not isinstance(own, Mapping):
        return short
    document = {name: value for name, value in short.items() if name != "rest"}
    return {**document, "parameters": {**_calibration_parameters(rest if isinstance(rest, str) else ""), **own}}


def _library_reference(name: str, load: Callable[[str], Any], thing: Any) -> dict[str, Any] | None:
    if _NAME.fullmatch(name) is None or name.endswith(".json"):
        return None
    try:
        return {"of": name} if load(name) == thing else None
    except DocumentError:
        return None


def _changed_value(document: Mapping[str, Any], change: models.Change) -> Any:
    """The value that a change ended in: from the document, because the change holds lists as text only."""
    place: Any = document
    for part in change.field.split("."):
        if isinstance(place, Mapping) and part in place:
            place = place[part]
        elif isinstance(place, list) and part.isdecimal() and int(part) < len(place):
            place = place[int(part)]
        else:
            return change.new
    return place


def _build_from_short(short: Mapping[str, Any], load: Callable[[str], Any], edited: Callable[..., Any]) -> Any:
    """The model or system that a short description stands for. Raises `Refused` or a `DocumentError`."""
    unknown = short.keys() - {"of", "name", "title", "set"}
    base, changes = short["of"], short.get("set")
    if unknown or not isinstance(base, str) or _NAME.fullmatch(base) is None or base.endswith(".json"):
        raise Refused(f"{_WHERE} names {shown(base)}, which is not a name of a library.")
    found = load(base)
    if changes is None:
        return found
    if not isinstance(changes, Mapping) or not all(isinstance(short.get(key), str) for key in ("name", "title")):
        raise Refused(f"{_WHERE} describes an edited copy of {shown(base)} that cannot be read.")
    return edited(found, changes, name=short["name"], title=short["title"])


@lru_cache(maxsize=64)
def unpacked(text: str) -> Unpacked:
    """Returns the scenario in a link. Raises `Refused`."""
    document = parse(unfolded(text, "scenario", _PRESET), _WHERE)
    if not isinstance(document, dict):
        raise Refused(_DAMAGED)
    check = document.pop("key", None)
    model, system = document.get("model"), document.get("system")
    try:
        if isinstance(model, dict) and "of" in model:
            document["model"] = models.to_document(_build_from_short(model, models.load, models.edited))
        if isinstance(system, dict) and "of" in system:
            document["system"] = hardware.to_document(_build_from_short(system, hardware.load, hardware.edited))
        if isinstance(document.get("calibration"), dict):
            document["calibration"] = _whole_calibration(document["calibration"])
    except PROBLEMS as problem:
        raise Refused(sentence(f"{_WHERE}: {problem}")) from None
    scenario = scenario_of(document, _WHERE)
    if isinstance(check, str) and scenario.key[:8] != check:
        return Unpacked(
            scenario,
            "The link was made with another version of the library or of the cost model, so figures may differ from "
            "those its sender saw.",
        )
    return Unpacked(scenario)
