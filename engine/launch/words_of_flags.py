"""Values of flags from the words of a shell command: what they are, where they were written, what has no value."""

from __future__ import annotations

from collections.abc import Sequence

from engine.launch.contract import Origin, UnknownValue
from engine.launch.shell import Word

__all__ = ["origin_of", "unread_word", "value_of", "word_after"]


def value_of(word: Word) -> str | UnknownValue:
    """Returns the text of a word, or `UnknownValue` where a part of it has no value.

    Args:
        word: of a command.
    """
    return UnknownValue(" ".join(word.unknown), word.line, word.file) if word.unknown else word.text


def origin_of(flag: str, words: Sequence[Word]) -> Origin:
    """Returns where the value of a flag comes from.

    Args:
        flag: as the command has it.
        words: that give its value; the flag's own where it has none.
    """
    first = words[0]
    defaults = [each for word in words for each in word.defaults]
    if any(word.unknown for word in words):
        return Origin("unknown", f"{flag} {' '.join(each for word in words for each in word.unknown)}", first.file,
                      first.line)  # fmt: skip
    values = " ".join(word.text for word in words if word.text != flag)
    said = (f"{flag}{values}" if flag.endswith(("=", ":")) else f"{flag} {values}".strip())[:200]
    if defaults:
        said = f"{said} (the script's default for {', '.join(dict.fromkeys(defaults))})"
    return Origin("stated", said, first.file, first.line)


def word_after(word: Word, length: int) -> Word:
    """Returns the part of a word behind its first letters, such as the value behind `--flag=`.

    Args:
        word: of a command.
        length: letters to leave out.
    """
    return Word(word.text[length:], word.line, word.file, word.unknown, word.defaults)


def unread_word(word: Word) -> str | None:
    """Returns a sentence on a word that may stand for any number of others, None for other words.

    Args:
        word: of a command.
    """
    if word.text or not word.unknown:
        return None
    return f"What {' '.join(word.unknown)} adds on line {word.line} is unknown: it has no value in the script."
