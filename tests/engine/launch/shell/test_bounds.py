"""Hostile scripts end with a reading or one sentence, and work grows with the length of the text."""

from __future__ import annotations

import random
import resource
import tracemalloc

import pytest

from engine import launch
from engine.launch.contract import LaunchError
from engine.launch.conversion import MOST_BYTES
from engine.launch.shell import read_script
from engine.launch.shell.values import MOST_WORK

REPEATED = [
    "$((",
    "${",
    "$(",
    '"$(',
    "a=$a$a\n",
    "A+=$A\n",
    "[ a = b ] && ",
    "<<A\n",
    "a=b\n",
    "x\n",
    "words --a b ",
    '"$a"',
    "for x in a b; do ",
    "for x in a b; do A=$A$x; ",
    "if [ -f x ]; then A=1; fi\n",
    "if [ -f x ]; then\n",
    "f() { f; }; f\n",
    "(",
    'eval "$X"\n',
    'X=\'eval "$X"\'; eval "$X"\n',
    "'",
    "`",
    "> < >> ",
    ") fi esac done ;; ",
    '"',
    "\\",
    "${a%%*a*} ",
    "case $1 in a) A=1;; b) A=2;; esac\n",
    "[[ ( a && ",
    "\\\n",
    "# <<A\n",
    "; & | ",
    "$((1+1)) ",
    "A=(x x x)\n",
    "while read x; do A=$x; done\n",
    "{a,b} ",
    ". a\n",
    "cat <<A\n--x y\nA\n",
    "case x in x) ",
    "bash -c '",
    "A[9999999999]=1\n",
    "$((9**9**9)) ",
    "${!A} ",
    "\ue000\uf8ff ",
    "é=$é ",
    "<<-'A' ",
    "<(",
    "a && ",
    "! ",
    "{ ",
    "select x in a; do ",
]


@pytest.mark.parametrize("text", REPEATED)
def test_work_and_memory_grow_with_the_length_of_a_script(text: str) -> None:
    """Twice the text takes about twice the counted work and memory, or ends with a sentence."""
    found: list[tuple[float, float]] = []
    for length in (3_000, 6_000):
        tracemalloc.start()
        try:
            done = float(read_script(text * (length // len(text)) + "\nx --num-layers 2\n").work)
        except LaunchError as error:
            assert str(error).endswith(".")  # noqa: PT017
            return
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        found.append((done, peak))
    (once, memory), (twice, more_memory) = found
    assert twice < 2.2 * once + 500
    assert more_memory < 2.5 * memory + 2_000_000


@pytest.mark.parametrize(
    "text",
    [
        "A=x\n" + "A+=$A\n" * 60,
        "A=x\n" + "B=$A$A$A$A;A=$B$B$B$B\n" * 30,
        "A=(x)\n" + 'A+=("${A[@]}")\n' * 60,
        "A=x\n" + "A=${A//x/xxxxxxxx}\n" * 60,
        'A=\'eval "$A$A"\'\neval "$A"\n' * 9,
    ],
)
def test_text_that_doubles_ends_with_a_sentence_before_it_takes_memory(text: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(LaunchError, match=r"\.$"):
        read_script(text)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes


def test_the_longest_files_end_in_bounded_work() -> None:
    for text in (
        "case $x in\n a) case $y in\n b) " * 70_000,
        "x --a b\n" * 240_000,
        "$a" * 200_000,
        "torchrun a.py --num-layers 2 \\\n" * 60_000,
    ):
        try:
            assert read_script(text[:MOST_BYTES]).work <= MOST_WORK
        except LaunchError as error:
            assert str(error).endswith(".")  # noqa: PT017


def test_random_text_is_read_or_refused_with_a_sentence() -> None:
    chance = random.Random(7)
    pieces = [
        *REPEATED,
        " ",
        "\n",
        "A=1",
        "$A",
        "${A:-",
        "}",
        ")",
        "))",
        "]]",
        "then ",
        "do ",
        "done\n",
        "esac\n",
        "fi\n",
        "else ",
        "EOF\n",
        "<<EOF\n",
        "torchrun ",
        "a.py ",
        "--num-layers ",
        "4 ",
        "declare -A M=(",
        "[k]=v",
        "set -- ",
        "unset A\n",
        "shift 9\n",
        "local x\n",
        "read A B\n",
        "source f\n",
        "exit\n",
        "srun -N 2 ",
        "#SBATCH -N 2\n",
        "@",
        "*",
        "\u2028",
        "\x1b",
        "日本",
        "((",
        "++",
        "?",
        ":",
        "=~",
        "|&",
        "&>",
        "2>&1",
        "coproc ",
        "time ",
        "~",
    ]
    for _ in range(400):
        text = "".join(chance.choices(pieces, k=chance.randint(1, 60)))
        try:
            read_script(text)
            launch.read_text(text + "\ntorchrun a.py --num-layers 2 --micro-batch-size $A\n", "a.sh")
        except LaunchError as error:
            assert str(error).endswith(".")  # noqa: PT017


def test_numbers_and_patterns_are_bounded() -> None:
    for script in (
        "show $((" + "1+" * 100_000 + "1))",
        "show $((" + "(" * 5_000 + "1" + ")" * 5_000 + "))",
        "show $((" + "9" * 5_000 + "))",
        f"A={'a' * 30_000}b; show ${{A%%{'*a' * 400}c}}",
        f"A={'a' * 50_000}; case $A in {'*a' * 300}c) x;; esac",
    ):
        assert read_script(script).work < MOST_WORK
