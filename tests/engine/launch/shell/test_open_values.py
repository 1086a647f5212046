"""What has no value in a script stays open with its expression; what has one is that, with its line."""

from __future__ import annotations

import pytest

from engine.launch.shell import Word, read_script


def shown(script: str) -> list[str]:
    """The words behind `show`: known ones as text, others as their expressions in angle brackets."""
    call = next(each for each in read_script(script, "a.sh").calls if each.words[0].text == "show")
    return [each.text + "".join(f"<{one}>" for one in each.unknown) for each in call.words[1:]]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        # Values of variables that are set, of defaults, and of what is known to be unset.
        ("X=4; show ${X:-8} ${X-8} ${X:+7} ${X+7} ${X:=9}", "4 4 7 7 4"),
        ("X=; show ${X:-8} a${X-8} a${X:+7} ${X+7} ${X:=9} $X", "8 a a 7 9 9"),
        ("X=4; unset X; show ${X:-8} a$X a${X+7}", "8 a a"),
        ("show ${1:-8} ${TP:-4} ${NODES:=2} $NODES", "8 4 2 2"),
        ("P=s3://a/b.tar.gz; show ${P##*/} ${P%.*} ${P#*:} ${#P}", "b.tar.gz s3://a/b.tar //a/b.tar.gz 15"),
        ("A=(--x 1 '2 3'); A+=(--y); show ${#A[@]} \"${A[@]}\" ${A[1]}", "4|--x|1|2 3|--y|1"),
        ("declare -A S=([7b]=32 [70b]=80); K=70b; show ${S[$K]} ${S[7b]}", "80 32"),
        ("N=4; G=8; show $((N * G)) $((N*G/3)) $((-7/2)) $((2**10)) $((N>3?1:2))", "32 10 -3 1024 1"),
        ("f() { local n=$1; shift; show $n $# \"$@\"; }; f 3 a 'b c'", "3|2|a|b c"),
        ("for n in 7; do TP=$n; done; show $TP", "7"),
        ("eval 'TP=4'; Q='--a \"b c\"'; show $TP; eval show $Q", "4"),
        # Values from outside.
        ("show $TP ${9} $1 x$(nproc)y `pwd` $((TP * 2))", "<$TP> <${9}> <$1> xy<$(nproc)> <`pwd`> <$((TP * 2))>"),
        ('show "$@" $* ${@:2}', "<$@> <$*> <${@:2}>"),
        ("TP=$1; show --tp=$TP ${TP:-8}", "--tp=<$1> 8"),
        ("read -r TP PP <<< '2 4'; show $TP $PP", "<$TP> <$PP>"),
        # Here-documents that become variables.
        ("A=$(cat <<E\n--x 1\n --y $TP\nE\n)\nshow $A", "--x 1 --y <$TP>"),
        ("A=--z; A+=$(cat <<-'E' | tr '\\n' ' '\n\t --x $B\nE\n)\nshow $A", "--z --x $B"),
        ("read -r -d '' A <<'E' || true\n--x 1\n --y 2\nE\nshow $A", "--x 1 --y 2"),
        ("read -d '' A <<'E'\n--x 1 \\\n --y 2\nE\nshow $A", "--x 1 --y 2"),
        ("read A B <<E\nshow 1\n2\nE\nshow $A $B", "<$A> <$B>"),
        ("A=$(grep x <<E\n--x 1\nE\n)\nshow $A", "<$(grep x )>"),
        ("mapfile -t L < f; while read h; do N=$h; done < f; show ${L[0]} $N", "<$L> <$h>"),
        ("for tp in 1 2 4; do show $tp; done", "<$tp (1, 2, 4)>"),
        ("for ((i=0; i<4; i++)); do show $i; done", "<$i>"),
        ("for i in 1 2; do N=$((N + 1)); done; show $N", "<$((N + 1))>"),
        ("N=0; for i in 1 2; do N=$((N + 1)); show $N; done", "<$((N + 1))>"),
        (
            "A='--x 1'; for i in a b; do A=\"$A --y $i\"; done; show $A",
            "--x 1 <$A (changes in the loop on line 1)> --y <$i (a, b)>",
        ),
        (
            "show $((99999999999 * 99999999999)) $((1 / 0)) $((9**99))",
            "<$((99999999999 * 99999999999))> <$((1 / 0))> <$((9**99))>",
        ),
        # Branches that nothing decides.
        ("if [ -f x ]; then TP=2; else TP=4; fi; show $TP", "<$TP (2 or 4)>"),
        ("TP=2; [ -f x ] && TP=4; show $TP", "<$TP (2 or 4)>"),
        ("[ -f x ] && TP=4; show ${TP:-1}", "<$TP (4 or not set)>"),
        ("A='--x 1'; if [ -f x ]; then A=\"$A --bf16\"; fi; show $A", "--x 1 --bf16"),
        ("if [ -f x ]; then A='--tp 2 --x 1'; else A='--tp 4 --x 1'; fi; show $A", "--tp <2 or 4> --x 1"),
        ("case $(hostname) in a*) A=(--tp 2);; *) A=(--tp 4);; esac; show ${A[@]}", "--tp <2 or 4>"),
        ("if [ -f x ]; then TP=4; else TP=4; fi; show $TP", "4"),
        # Files that are not at hand.
        ("source conf.sh; show $TP ${TP:-8} ${1:-2}", "<$TP> <${TP:-8}> 2"),
        ("TP=4; . ./conf.sh; show $TP", "4"),
        ("source ~/venv/bin/activate; show ${TP:-8}", "8"),
    ],
)
def test_values_are_known_or_open(script: str, words: str) -> None:
    expected = words.split("|") if "|" in words else None
    found = shown(script)
    assert found == expected if expected is not None else " ".join(found) == words


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("TP=1; while [[ $# -gt 0 ]]; do case $1 in --tp) TP=$2; shift 2;; esac; done", "1"),
        ("TP=1; while getopts 't:' o; do case $o in t) TP=$OPTARG;; esac; done", "1"),
        ('if [ -z "$1" ]; then TP=3; else TP=$1; fi', "3"),
        ('[ "$1" = fast ] && TP=8 || TP=2', "2"),
        ('case "$1" in 7b) TP=1;; *) TP=4;; esac', "4"),
        ("TP=${1:-6}", "6"),
        ("if (( $# > 0 )); then TP=$1; else TP=5; fi", "5"),
    ],
)
def test_values_without_arguments_are_said_to_be_the_scripts_defaults(script: str, value: str) -> None:
    (word,) = read_script(f"{script}\nshow $TP").calls[-1].words[1:]
    assert (word.text, word.unknown) == (value, ())
    assert word.defaults


def test_words_have_the_line_on_which_their_text_was_written() -> None:
    script = 'TP=4\nA=(\n  --tp $TP\n  --pp 2\n)\nB="--x 1 \\\n  --y 2"\nB+=" --z"\n'
    script += 'bash -c "show ${A[*]} $B" # "\nshow <<< x'
    call = next(each for each in read_script(script, "a.sh").calls if len(each.words) == 10)
    assert [(each.text, each.line) for each in call.words] == [
        ("show", 9),
        ("--tp", 3),
        ("4", 1),
        ("--pp", 4),
        ("2", 4),
        ("--x", 6),
        ("1", 6),
        ("--y", 7),
        ("2", 7),
        ("--z", 8),
    ]
    assert call.words[0].file == "a.sh"
    assert [each.text for each in call.wrappers[0][:2]] == ["bash", "-c"]


@pytest.mark.parametrize(
    "wrapper",
    [
        'srun -N 2 bash -c "{}"',
        "ssh host '{}'",
        "eval '{}'",
        "sbatch --wrap='{}'",
        "bash <<EOF\n{}\nEOF",
        "sbatch <<'EOF'\n#!/bin/bash\n{}\nEOF",
        "R='{}'; $R",
        "R='{}'; srun $R",
        "f() {{ {}; }}; f",
        "f() {{ {}; }}",
        "( {} ) & wait",
        "if ! {}; then exit; fi",
        "{} 2>&1 | tee log.txt",
        "cat <<A > f; {}\nx\nA",
        "time {} > a 2> b",
        "cd x && {}",
        "docker run x bash -lc '{}'",
        "[[ -f x ]] || {}",
        "cat <<EOF > run.sh\n{}\nEOF\nbash run.sh",
    ],
)
def test_commands_are_found_wherever_people_put_them(wrapper: str) -> None:
    calls = read_script("T=4\n" + wrapper.format("torchrun a.py --tp $T")).calls
    assert any([each.text for each in call.words[-3:]] == ["a.py", "--tp", "4"] for call in calls)


def test_files_that_are_sourced_are_read_where_given_and_named_where_not() -> None:
    script = "source conf/a.sh\n. ./b.sh x\nshow $TP $PP\n"
    found = read_script(script, "a.sh", {"conf/a.sh": "# settings\nTP=2\n"})
    assert [(each.name, each.line) for each in found.missing_files] == [("./b.sh", 2)]
    assert found.calls[-1].words[1] == Word("2", 2, "conf/a.sh")
    assert found.calls[-1].words[2].unknown == ("$PP",)
    assert str(found.missing_files[0]) == "./b.sh, sourced on line 2, is not at hand: what it sets is unknown."
