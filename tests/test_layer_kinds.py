"""No module outside the layers, their importers and documents knows a kind of layer by name."""

from __future__ import annotations

import ast
from pathlib import Path

from models.layers.contract import LayerKind

ROOT = Path(__file__).parent.parent
AT_HOME = ("models/layers/", "models/hugging_face", "models/patterns.py", "models/parameters.py")
"""The kinds, the readers of published configurations, and the layers of a plain architecture."""
PUBLIC = {"models.layers", "models.layers.contract", "models.layers.counts", "models.layers.pattern"}
"""What other rooms may import: nothing with the name of a kind."""


def kinds() -> dict[str, str]:
    """Word and class name of every kind."""
    found, left = {}, list(LayerKind.__subclasses__())
    while left:
        each = left.pop()
        left += each.__subclasses__()
        found[str(each.model_fields["kind"].default)] = each.__name__
    return found


def test_no_other_module_names_a_kind_of_layer() -> None:
    words = {word for word in kinds() if word not in ("attention", "latent_attention", "experts", "feedforward")}
    assert len(words) >= 10
    names = set(kinds().values())
    strangers = []
    for folder in ("engine", "dashboard", "hardware", "models"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            place = path.relative_to(ROOT).as_posix()
            if place.startswith(AT_HOME):
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("models.layers"):
                    strangers += [] if node.module in PUBLIC else [f"{place} imports {node.module}"]
                elif isinstance(node, ast.Name | ast.Attribute):
                    name = node.id if isinstance(node, ast.Name) else node.attr
                    strangers += [f"{place} names {name}"] if name in names else []
                elif isinstance(node, ast.Constant) and node.value in words:
                    strangers.append(f"{place} names {node.value}")
    assert strangers == []
