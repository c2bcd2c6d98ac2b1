"""Writes the tables of docs/results/pretraining-plan.md: `python tools/pretraining_plan.py`.

A test holds the page to what this prints.
"""

from __future__ import annotations

from pathlib import Path

from marked_block import Block
from pocketbert.costs import encoder_flops
from pocketbert.presets import preset
from pocketbert_bench import run_plan
from pocketbert_bench.run_plan import ACCELERATORS, GIB, LENGTHS, Phase, Utilization

BLOCK = Block(
    path=Path(__file__).resolve().parents[1] / "docs" / "results" / "pretraining-plan.md",
    name="PLAN",
    origin="tools/pretraining_plan.py from pocketbert_bench.run_plan",
)
UTILIZATION = Utilization()
# The machine and the length that the commands are written for.
COMMANDS_FOR, COMMANDS_LENGTH = "8 A100 80 GB", 128


def plan() -> str:
    """The text between the page's marks."""
    return "\n".join([*_operations(), "", *_hours(), "", *_example(), "", *_memory(), "", *_commands()]) + "\n"


def _operations() -> list[str]:
    lines = [
        "### Operations",
        "",
        "Billions of floating-point operations in one example, two per multiply-add:",
        "",
        f"| | {' | '.join(f'{length} tokens' for length in LENGTHS)} |",
        "|---|" + "---:|" * len(LENGTHS),
    ]
    for name in (run_plan.TEACHER, run_plan.STUDENT):
        config = preset(name).config
        rows = {
            f"`{name}`, forward": lambda length, config=config: encoder_flops(config, length),
            f"`{name}`, masked-LM head": lambda length, config=config: run_plan.head_flops(config, length),
        }
        lines += [_row(label, [f"{flops(length) / 1e9:.2f}" for length in LENGTHS]) for label, flops in rows.items()]
    for phase in run_plan.phases():
        parts = [(phase.teacher_flops(length) / 1e9, phase.student_flops(length) / 1e9) for length in LENGTHS]
        lines.append(_row(f"{phase.name}: teacher + student", [f"{ours:.1f} + {own:.1f}" for ours, own in parts]))
    return lines


def _hours() -> list[str]:
    heads = [f"{each.name}, {length}" for each in ACCELERATORS for length in LENGTHS]
    peaks = "; ".join(f"{each.name} as {each.devices} of {each.peak_flops / 1e12:g}" for each in ACCELERATORS)
    lines = [
        "### Hours",
        "",
        f"Expected hours at 128 and at 512 tokens, at an assumed utilization of {UTILIZATION.teacher:.0%} in the "
        f"teacher's operations and {UTILIZATION.student:.0%} in the student's; peaks, in TFLOP/s a device: {peaks}.",
        "",
        f"| phase | steps | batch | {' | '.join(heads)} |",
        "|---|---:|---:|" + "---:|" * len(heads),
    ]
    for phase in run_plan.phases():
        cells = [_hours_cell(phase, name, length) for name in ACCELERATORS for length in LENGTHS]
        lines.append(_row(phase.name, [f"{phase.steps:,}", f"{phase.batch_size:,}", *cells]))
    return lines


def _hours_cell(phase: Phase, accelerator: run_plan.Accelerator, length: int) -> str:
    hours = phase.hours(accelerator, length, UTILIZATION)
    return f"{hours:,.0f}" if hours >= 10 else f"{hours:.1f}"


def _example() -> list[str]:
    phase, machine, length = run_plan.phases()[0], ACCELERATORS[0], LENGTHS[0]
    flops = phase.teacher_flops(length)
    peak = machine.devices * machine.peak_flops
    return [
        f"For example the {phase.name} on {machine.name} at {length} tokens: {phase.steps:,} steps × "
        f"{phase.batch_size:,} examples × {flops / 1e9:.1f} × 10⁹ operations = "
        f"{phase.steps * phase.batch_size * flops:.2e}; {machine.devices} cores × {machine.peak_flops / 1e12:.1f} × "
        f"10¹² a second × {UTILIZATION.teacher} = {peak * UTILIZATION.teacher:.2e} a second; "
        f"{phase.hours(machine, length, UTILIZATION):.1f} hours."
    ]


def _memory() -> list[str]:
    heads = [f"{each.name}, {length}" for each in ACCELERATORS for length in LENGTHS]
    lines = [
        "### Memory",
        "",
        "The largest micro-batch of a device in bfloat16, in how many parts its share of the batch is computed, and "
        "the GiB that this takes:",
        "",
        f"| phase | {' | '.join(heads)} |",
        "|---|" + "---:|" * len(heads),
    ]
    for phase in run_plan.phases():
        cells = []
        for accelerator in ACCELERATORS:
            for length in LENGTHS:
                found = run_plan.fit(phase, accelerator, length)
                cells.append(f"{found.micro_batch} × {found.micro_batches}, {found.used_bytes / GIB:.0f} GiB")
        lines.append(_row(phase.name, cells))
    return lines


def _commands() -> list[str]:
    machine = next(each for each in ACCELERATORS if each.name == COMMANDS_FOR)
    teacher, transfer, _, distillation = run_plan.phases()
    parts = {phase.name: run_plan.fit(phase, machine, COMMANDS_LENGTH) for phase in run_plan.phases()}
    # One number serves all stages of a method: the phase that needs the most parts decides.
    most = max(parts[phase.name].micro_batches for phase in (transfer, distillation))
    return [
        "### Commands",
        "",
        f"For {machine.name} at {COMMANDS_LENGTH} tokens:",
        "",
        "```console",
        f"$ pocketbert pretrain --preset={run_plan.TEACHER} --data=corpus --output=runs/teacher \\",
        f"    --steps={teacher.steps} --batch-size={teacher.batch_size} "
        f"--micro-batches={parts[teacher.name].micro_batches} \\",
        f"    --optimizer=lamb --precision=bfloat16 --distribution={machine.distribution}",
        f"$ pocketbert distill --method=mobilebert --teacher=runs/teacher/model --student={run_plan.STUDENT} \\",
        f"    --pretraining-data=corpus --output=runs/student --max-length={COMMANDS_LENGTH} --micro-batches={most} \\",
        f"    --precision=bfloat16 --distribution={machine.distribution}",
        "```",
    ]


def _row(label: str, cells: list[str]) -> str:
    return f"| {label} | {' | '.join(cells)} |"


if __name__ == "__main__":
    BLOCK.write(plan())
