"""The number of GPUs that launchers and allocations say, and what the script says where they disagree."""

from __future__ import annotations

import pytest

from engine.launch.launchers import ScriptLaunch, launch_of

TRAIN = "train.py --num-layers 4"


def started(script: str) -> ScriptLaunch:
    """The launch of a script in which TRAIN stands for the program and its flags."""
    found = launch_of(script.replace("TRAIN", TRAIN), ("--num-layers",), "a.sh")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("script", "gpus"),
    [
        # Launchers of processes.
        ("torchrun --nnodes 4 --nproc_per_node 8 TRAIN", 32),
        ("torchrun --nnodes=4 --nproc-per-node=8 TRAIN", 32),
        ("torchrun --standalone --nproc_per_node 8 TRAIN", 8),
        ("python -m torch.distributed.run --nnodes 2 --nproc_per_node=4 TRAIN", 8),
        ("deepspeed --num_nodes 2 --num_gpus 8 TRAIN", 16),
        ("deepspeed --num_gpus=4 TRAIN", 4),
        ("accelerate launch --num_processes 16 TRAIN", 16),
        ("mpirun -np 16 python TRAIN", 16),
        ("mpiexec -n 4 --host a,b python TRAIN", 4),
        ("G=4; N=3; torchrun --nproc_per_node $G --nnodes $N TRAIN", 12),
        ("N=${1:-2}; G=${2:-8}; torchrun --nproc_per_node $G --nnodes $N TRAIN", 16),
        # Allocations, in every spelling.
        (
            "#SBATCH -N 8\n#SBATCH --gres=gpu:4\nsrun --ntasks-per-node=1 torchrun --nnodes $SLURM_NNODES "
            "--nproc_per_node 4 TRAIN",
            32,
        ),
        ("#SBATCH --nodes 8\n#SBATCH --gpus-per-node=h100:4\nsrun python TRAIN", 32),
        ("#SBATCH --nodes=2 --gres=gpu:h100:8 # two\nsrun python TRAIN", 16),
        ("#SBATCH -N2\n#SBATCH --gres=craynetwork:1,gpu:a100:4(S:0-1)\nsrun python TRAIN", 8),
        ("#SBATCH -N 4\n#SBATCH --gpus 32\nsrun python TRAIN", 32),
        ("#SBATCH -G 16\nsrun python TRAIN", 16),
        ("#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\nsrun python TRAIN", 16),
        ("#SBATCH -n 24\nsrun python TRAIN", 24),
        ("#SBATCH -n 4\n#SBATCH --gpus-per-task=2\nsrun python TRAIN", 8),
        ("srun -N 2 --gpus-per-node 8 --ntasks-per-node 8 python TRAIN", 16),
        ("srun -N2 -n16 --container-image=x --gres gpu:8 python TRAIN", 16),
        ("##SBATCH --nodes=9\n#SBATCH --nodes=3\n#SBATCH --gres=gpu:2\nsrun python TRAIN", 6),
        # Variables that follow from an allocation, and their arithmetic.
        (
            "#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\nG=$SLURM_GPUS_PER_NODE\n"
            "torchrun --nnodes $SLURM_JOB_NUM_NODES --nproc_per_node ${G:-1} TRAIN",
            32,
        ),
        (
            "#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=8\nW=$((SLURM_NNODES * SLURM_NTASKS_PER_NODE))\n"
            "mpirun -np $W python TRAIN",
            32,
        ),
        ("#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=8\nmpirun -np $SLURM_NTASKS python TRAIN", 32),
        (
            "#SBATCH --nodes=4\n#SBATCH --gres=gpu:8\ntorchrun --nnodes $SLURM_NNODES "
            "--nproc_per_node $SLURM_GPUS_ON_NODE TRAIN",
            32,
        ),
        (
            "#SBATCH --nodes=4\n#SBATCH --gres=gpu:8\nsrun --ntasks-per-node=1 torchrun --nnodes 4 "
            "--nproc_per_node gpu "
            "TRAIN",
            32,
        ),
        # Launchers in quotes, variables and here-documents.
        (
            "#SBATCH --nodes=16\n#SBATCH --gres=gpu:8\n#SBATCH --ntasks-per-node=1\nL='torchrun --nproc_per_node 8 "
            "--nnodes 16'\nC='TRAIN'\nsrun bash -c \"$L $C\"",
            128,
        ),
        (
            "L='python -m torch.distributed.launch --nproc_per_node 4 --nnodes 128'\nC='TRAIN'\n"
            "srun bash -c '$L --r $R $C'",
            512,
        ),
        ("#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\nC='python TRAIN'\nsrun sh -c \"$C\"", 16),
        ("N=4\nsbatch <<EOF\n#!/bin/bash\n#SBATCH --nodes=$N\n#SBATCH --gpus-per-node=8\nsrun python TRAIN\nEOF", 32),
        ("sbatch -N 2 --gres=gpu:8 --wrap 'srun python TRAIN'", 16),
        # One task of each node is one launcher, not one GPU.
        (
            "#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=1\n#SBATCH --gres=gpu:8\nsrun torchrun --nnodes 4 "
            "--nproc_per_node 8 TRAIN",
            32,
        ),
        # What does not determine the number.
        ("torchrun --nproc_per_node 8 --nnodes $NNODES TRAIN", None),
        ("torchrun --nproc_per_node $(nproc) TRAIN", None),
        ("torchrun --nproc_per_node 8 --nnodes 1:4 TRAIN", None),
        ("python TRAIN", None),
        ("#SBATCH --nodes=$N\n#SBATCH --gres=gpu:8\nsrun python TRAIN", None),
        ("#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=1\nsrun torchrun --nproc_per_node auto TRAIN", None),
    ],
)
def test_the_number_of_gpus_is_nodes_times_gpus_of_each(script: str, gpus: int | None) -> None:
    found = started(script)
    assert found.gpus == gpus
    assert bool(found.gpus_origin) == (gpus is not None)
    assert [each.text for each in found.words] == ["--num-layers", "4"]


def test_where_the_number_comes_from_is_said_with_its_line() -> None:
    found = started("#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\nsrun python TRAIN")
    assert (found.gpus_origin, found.gpus_line) == ("#SBATCH --nodes, --gpus-per-node", 2)
    assert started("torchrun --nnodes 4 --nproc_per_node 8 TRAIN").gpus_origin == "torchrun --nproc_per_node, --nnodes"


@pytest.mark.parametrize(
    ("script", "gpus", "parts"),
    [
        (
            "#SBATCH --nodes=8\n#SBATCH --gres=gpu:8\nsrun torchrun --nnodes 4 --nproc_per_node 8 TRAIN",
            32,
            ("torchrun --nproc_per_node, --nnodes (line 3) gives 32 GPUs", "#SBATCH --nodes, --gres (line 1) 64"),
        ),
        (
            "#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n#SBATCH --ntasks-per-node=4\nsrun python TRAIN",
            16,
            ("#SBATCH --nodes, --gpus-per-node (line 1) gives 16 GPUs", "--ntasks-per-node (line 1) 8"),
        ),
    ],
)
def test_numbers_that_contradict_are_both_named(script: str, gpus: int, parts: tuple[str, ...]) -> None:
    found = started(script)
    assert found.gpus == gpus
    assert all(any(part in each for each in found.remarks) for part in parts)


def test_the_command_that_runs_counts_before_one_that_is_printed_or_only_possible() -> None:
    script = 'C="torchrun --nproc_per_node 8 TRAIN"\necho "$C"\n'
    script += "if [ -f x ]; then torchrun --nproc_per_node 2 TRAIN; else\n$C\nfi"
    found = started(script)
    assert found.gpus == 2
    assert any("other commands of this kind" in each for each in found.remarks)
    assert started('C="torchrun --nproc_per_node 8 TRAIN"\necho "$C"\n$C').gpus == 8
