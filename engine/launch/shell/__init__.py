"""Launch scripts of the shell as their commands and variables; nothing is executed.

`tree-sitter-bash` parses, an evaluator of our own with bounds on work, text and depth puts variables in. An expression
without a value, such as `$TP` of the environment or `$(nproc)`, stays unknown: it never becomes empty or a default.
"""

from engine.launch.shell.evaluator import read_script
from engine.launch.shell.script import Call, MissingFile, Script
from engine.launch.shell.values import Word

__all__ = ["Call", "MissingFile", "Script", "Word", "read_script"]
