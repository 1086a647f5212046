"""Variables of a shell in the values of a configuration, such as `$((LWS_GROUP_SIZE * DP_SIZE_LOCAL))`.

The evaluator of launch scripts fills them in; nothing is executed. A value with a part from outside is unknown.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from engine.launch.contract import LaunchError, UnknownValue
from engine.launch.shell import read_script

__all__ = ["check_environment", "export_lines", "fill_in", "fill_in_texts"]

_MARK: Final = "shardscape_value"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,200}\Z")
MOST_VARIABLES: Final = 2_000


def check_environment(environment: Mapping[str, Any] | None) -> dict[str, str]:
    """Return variables by name as texts; names that a shell does not know are left out.

    Args:
        environment: values by name, None for none.

    Raises `LaunchError` for anything else.
    """
    if environment is None:
        return {}
    if not isinstance(environment, Mapping) or len(environment) > MOST_VARIABLES:
        raise LaunchError(f"The environment must be a table of at most {MOST_VARIABLES:,} variables by name.")
    return {
        str(name): str(value)
        for name, value in environment.items()
        if _NAME.match(str(name)) and value is not None and not isinstance(value, Mapping | list | tuple)
    }


def export_lines(environment: Mapping[str, str]) -> str:
    """Return lines of a script that set variables.

    Args:
        environment: values by name.
    """
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in environment.items())


def fill_in_texts(texts: Sequence[str], environment: Mapping[str, str]) -> list[str | UnknownValue]:
    """Return texts with their variables filled in; unknown where a part has no value.

    Args:
        texts: values as a configuration has them.
        environment: values by name.

    Raises `LaunchError` for texts that take more work than launch scripts do.
    """
    if not any("$" in text for text in texts):
        return list(texts)
    quoted = "\n".join(f'{_MARK} "{_escape(text)}"' for text in texts)
    script = read_script(export_lines(environment) + quoted + "\n", "value")
    words = [call.words[1] for call in script.calls if len(call.words) == 2 and call.words[0].text == _MARK]
    if len(words) != len(texts):
        return [UnknownValue(text[:160]) if "$" in text else text for text in texts]
    return [UnknownValue(" ".join(word.unknown)[:160]) if word.unknown else word.text for word in words]


def _escape(text: str) -> str:
    # Backticks would run a command: they stay text.
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("`", "\\`")


def fill_in(values: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return values by name with variables filled in, also in tables and lists; other values than texts stay.

    Args:
        values: by name.
        environment: values of variables by name.
    """
    texts = list(dict.fromkeys(_list_expressions(values)))
    found = dict(zip(texts, fill_in_texts(texts, environment), strict=True))
    return {name: _replace_texts(value, found) for name, value in values.items()} if found else dict(values)


def _list_expressions(value: Any) -> Iterator[str]:
    """Yield the texts with variables in nested tables and lists."""
    if isinstance(value, str):
        if "$" in value:
            yield value
    elif isinstance(value, Mapping | list | tuple):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _list_expressions(each)


def _replace_texts(value: Any, found: Mapping[str, str | UnknownValue]) -> Any:
    if isinstance(value, str):
        return found.get(value, value)
    if isinstance(value, Mapping):
        return {key: _replace_texts(each, found) for key, each in value.items()}
    return [_replace_texts(each, found) for each in value] if isinstance(value, list | tuple) else value
