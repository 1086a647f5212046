"""Words and variables are what bash itself makes of them, for generated scripts that run nothing else."""

from __future__ import annotations

import random
import re
import shutil
import subprocess

import pytest

from engine.launch.shell import read_script

BASH = shutil.which("bash")
NAMES, ARRAYS = ("A", "B", "C", "D1", "_e"), ("X", "Y")
BEGINNING = """N1=3
N2=12
A="a b"
B=
C=x/y.z
D1=
_e=8
X=(a 'b c' 3)
Y=()
declare -A M=([k]=v [j]="w w")
"""
SHOW = 'show() { printf "W<%s>" "$@"; }\n'
AT_END = 'printf "\\n==\\n"; for n in A B C D1 _e N1 N2; do printf "%s<%s>\\n" "$n" "${!n}"; done\n'


class Scripts:
    """Scripts of assignments, expansions, conditions, functions and arithmetic."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def one(self, *choices: str) -> str:
        return self.random.choice(choices)

    def text(self) -> str:
        pieces = ("a", "b7", "Zq", "8", "16", "-x", "--n", "x.y", "a/b/c.tar.gz", "_", "foo", "=", "2,4")
        return "".join(self.random.choices(pieces, k=self.random.randint(1, 3)))

    def number(self, depth: int = 0) -> str:
        chance = self.random.random()
        if depth > 3 or chance < 0.35:
            return self.one("0", "1", "2", "3", "7", "8", "16", "64", "100", "0x1f", "010")
        if chance < 0.5:
            return self.one("N1", "N2", "$N1", "${N2}")
        if chance < 0.6:
            return f"({self.number(depth + 1)})"
        if chance < 0.66:
            return f"{self.one('-', '!', '~', '+')} {self.number(depth + 1)}"
        if chance < 0.72:
            return f"{self.number(depth + 1)} ? {self.number(depth + 1)} : {self.number(depth + 1)}"
        sign = self.one(
            "+", "-", "*", "/", "%", "<<", ">>", "&", "|", "^", "&&", "||", "<", ">", "<=", ">=", "==", "!="
        )
        right = self.one("3", "7", "(1+1)") if sign in "/%<<>>" else f"({self.number(depth + 1)})"
        return f"({self.number(depth + 1)}) {sign} {right}"

    def expression(self, depth: int = 0) -> str:
        name = self.one(*NAMES)
        pattern = self.one("*/", "*.", ".*", "a", "*", "?", "[a-z]", "/*", "*7*", "x*y", "*[0-9]", "[!a]*")
        return self.one(
            f"${name}{self.one(':', '/', '-')}",
            f"${{{name}}}",
            f"${{{name}{self.one(':-', '-', ':+', '+')}{self.part(depth + 1, within=True)}}}",
            f"${{{name}{self.one(':-', '-', ':+', '+')}{self.part(depth + 1, within=True)}}}",
            f"${{{name}{self.one('#', '##', '%', '%%')}{pattern}}}",
            f"${{#{name}}}",
            f"${{{name}{self.one('/a/Q', '//a/Q', '//8', '/b7/zz')}}}",
            f"${{{name}:{self.one('0', '1', '2', ' -1', '1:2', '0:1', '3:1', '0: -1')}}}",
            f"${{{name}{self.one('^^', '^', ',,', ',')}}}",
            f"$(({self.number()}))",
            self.one("${%s[0]}", "${%s[1]}", "${#%s[@]}", "${%s[@]}", "${%s[*]}", "${%s[N1]}") % self.one(*ARRAYS),
        )

    def part(self, depth: int = 0, *, within: bool = False) -> str:
        chance = self.random.random()
        if depth > 2 or chance < 0.35 or (within and chance > 0.85):
            return self.text()
        if chance < 0.6:
            return self.expression(depth)
        if chance < 0.85:
            count = self.random.randint(0, 3)
            inside = [self.one(self.text(), self.expression(depth), " ", "\\$", '\\"') for _ in range(count)]
            return f'"{"".join(inside)}"'
        return self.one(f"'{self.text()} $A'", "\\ ", "$'a\\tb'", "\\$A")

    def word(self) -> str:
        return "".join(self.part() for _ in range(self.random.randint(1, 3)))

    def statement(self) -> str:
        name, other, array = self.one(*NAMES), self.one(*NAMES), self.one(*ARRAYS)
        return self.one(
            f"{name}={self.word()}",
            f"{name}={self.word()}",
            f"{name}+={self.word()}",
            f"{array}=({self.word()} {self.word()})",
            f"{array}+=({self.word()})",
            f"{array}[{self.one('0', '1', '2', 'N1')}]={self.word()}",
            f'M[{self.one(*"kjz")}]={self.word()}; {name}="${{M[{self.one(*"kjz")}]}}"',
            f": ${{{name}:={self.text()}}}",
            f"if [[ ${name} == {self.one('a*', 'x*', '8', '*z', '?', '[0-9]*')} ]]; then {name}={self.word()}; "
            f"else {other}={self.word()}; fi",
            f'if [ "${name}" = "{self.text()}" -o -z "${other}" ]; then {name}={self.word()}; fi',
            f'case "${name}" in a*|8) {name}={self.word()};; *) {other}={self.word()};; esac',
            f'f() {{ local z=$1; {name}="$2$z$#"; shift; A="$@"; }}; f {self.word()} {self.word()}',
            f"(( N1 {self.one('+=', '-=', '*=', '=')} {self.number()} )); (( N2++ ))",
            f'set -- {self.word()} {self.word()}; {name}="$1|$#|${{2:-q}}"',
            f'for i in {self.word()}; do :; done; {name}="${{{name}:-{self.text()}}}"',
        )

    def script(self) -> str:
        lines = [self.statement() for _ in range(self.random.randint(2, 8))]
        return BEGINNING + "\n".join([*lines, "show " + " ".join(self.word() for _ in range(3))]) + "\n"


@pytest.mark.skipif(BASH is None, reason="there is no bash")
def test_words_and_variables_are_those_of_bash() -> None:
    """Of every script that bash takes without a complaint, all words and variables; unknown ones are none here."""
    compared = 0
    scripts = Scripts(20261128)
    for _ in range(200):
        script = scripts.script()
        told = subprocess.run(
            [str(BASH), "--norc", "--noprofile", "-fc", SHOW + script + AT_END],
            capture_output=True,
            check=False,
            env={"PATH": "/nonexistent", "LC_ALL": "C.UTF-8"},
            timeout=20,
        )
        if told.stderr:
            continue
        found = read_script(script)
        if found.not_understood:
            continue
        words, _, variables = told.stdout.decode().rpartition("\n==\n")
        shown = next((call.words[1:] for call in found.calls if call.words[0].text == "show"), [])
        assert ("".join(f"W<{each.text}>" for each in shown) or "W<>") == words, script
        assert not [each for each in shown if each.unknown], script
        for name in (*NAMES, "N1", "N2"):
            expected = re.search(rf"(?:^|\n){name}<(.*?)>(?=\n|$)", variables, re.DOTALL)
            assert expected is not None
            assert found.variables.get(name) == expected[1], (name, script)
        compared += 1
    assert compared > 150
