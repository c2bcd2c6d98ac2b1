"""The command line as a user meets it: help, examples, `--config` files, completion, errors in one line."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command_lines import check_parses, joined_lines, variants

from pocketbert import __version__, cli
from pocketbert.commands import COMMANDS, command_line, finetune
from pocketbert.commands.command_line import Command, Options, parse
from pocketbert.configs import TaskConfig
from pocketbert.errors import UserError
from pocketbert.options import OptionField, describe_options, format_value
from pocketbert.progress import bar, log_info

POCKETBERT = Path(sys.executable).with_name("pocketbert")
# What takes seconds to import, and so has no place before a command runs.
HEAVY = [
    *"tensorflow tf_keras official tensorflow_text ai_edge_litert ai_edge_quantizer".split(),
    *"matplotlib sklearn scipy apache_beam".split(),
]


@pytest.fixture(autouse=True, scope="module")
def described_once() -> Iterator[None]:
    """Describes each dataclass once: a process parses one command line, these tests parse thousands."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(command_line, "describe_options", functools.cache(describe_options))
        yield


def required(command: Command) -> list[str]:
    """Arguments that give every required option a value."""
    arguments = []
    for field in command.fields:
        value = field.choices[0] if field.choices else "mobilebert" if field.name == "method" else "x"
        if field.positional:
            arguments.append(value)
        elif field.required:
            arguments.append(f"--{field.flag}={value}")
    return arguments


def other_value(field: OptionField) -> object:
    """A value that is not the default."""
    if field.choices:
        value: object = next(choice for choice in field.choices if choice != field.default)
    else:
        value = {"bool": not field.default, "int": 7, "float": 0.00025, "str": 'a "b", c\\d é'}[field.kind]
    return (value,) if field.many else value


def pocketbert(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(POCKETBERT), *arguments], capture_output=True, text=True, timeout=60, check=False)


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert cli.main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1, printed
    return printed.err


def test_help_answers_at_once() -> None:
    # A person's limit for "at once". The best of five, since other processes may hold both cores.
    seconds = []
    for _ in range(5):
        begun = time.perf_counter()
        assert pocketbert("--help").returncode == 0
        seconds.append(time.perf_counter() - begun)
    assert min(seconds) < 0.5


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_help_lists_every_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 0
    printed = capsys.readouterr()
    listed = re.findall(r"^  ([a-z-]+)  +\w", printed.out, flags=re.MULTILINE)
    assert listed == list(COMMANDS) and len(listed) >= 20 and printed.err == ""


def test_module_prints_the_version() -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "pocketbert", "--version"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (answer.returncode, answer.stdout) == (0, f"pocketbert {__version__}\n")


@pytest.mark.parametrize("line", variants(), ids=" ".join)
def test_options_become_flags(line: tuple[str, ...]) -> None:
    command = Command(line[0], line[1:])
    arguments = [*required(command), *line[1:]]
    options = parse(line[0], arguments)
    positional = {field.name for field in command.fields if field.positional}
    for part in command.parts:
        for field in dataclasses.fields(part.options):
            # `required` gives the arguments without a flag.
            given_anyway = field.name in ("method", *positional)
            if field.default is not dataclasses.MISSING and not given_anyway:
                assert getattr(options[part.options], field.name) == field.default, field.name
    for field in command.fields:
        assert len(field.help.strip(" .")) > 3, f"--{field.flag} has no description"
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", field.flag)
        if field.name not in ("method", "config") and not field.positional:
            value = other_value(field)
            text = value[0] if field.repeated else format_value(field, value)  # type: ignore[index]
            others = [argument for argument in arguments if not argument.startswith(f"--{field.flag}=")]
            with_it = _parsed(line[0], [*others, f"--{field.flag}={text}"])
            assert with_it is None or with_it.values[field.name] == value


def _parsed(name: str, arguments: list[str]) -> Options | None:
    """The options; None where a dataclass refuses the value."""
    try:
        options = parse(name, [argument for argument in arguments if not argument.startswith("--config=")])
        options.check()
        return options
    except UserError as error:
        assert "flag --" not in str(error), error
        return None


@pytest.mark.parametrize("line", variants(), ids=" ".join)
def test_help_is_grouped_required_first(line: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    command = Command(line[0], line[1:])
    assert cli.main([*line, "--help-all"]) == 0
    full = capsys.readouterr().out
    assert cli.main([*line, "--help"]) == 0
    short = capsys.readouterr().out
    described = full.partition("\nusage: ")[2]
    groups = re.findall(r"^([A-Z]\w+):\n  \S", described, flags=re.MULTILINE)
    assert [*dict.fromkeys(groups)] == groups
    assert groups[-2:] == ["General", "Example"]
    assert ("Required" in groups) == any(field.required for field in command.fields) == (groups[0] == "Required")
    listed = re.findall(r"^  --(?:\[no\])?([a-z0-9-]+)", described.partition("Example:")[0], flags=re.MULTILINE)
    assert sorted(listed) == sorted(field.flag for field in command.fields if not field.positional)
    assert ("--help-all" in short) == (len(short) < len(full)) == (not all(field.common for field in command.fields))


def test_help_shows_paths_and_types(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bundle", "--help-all"]) == 0
    printed = capsys.readouterr().out
    flags = "--output=DIR --train-file=FILE --config=FILE --text-column=TEXT --labels=TEXT,… --stride=N".split()
    assert [flag for flag in flags if f"\n  {flag}" not in printed] == []
    assert cli.main(["glue-scores", "--help"]) == 0
    assert "\n  --model=TASK=PATH" in capsys.readouterr().out


@pytest.mark.parametrize("line", variants(), ids=" ".join)
def test_described_files_are_paths(line: tuple[str, ...]) -> None:
    described = {
        field.flag: field.value_name
        for field in Command(line[0], line[1:]).fields
        if re.match(r"(?:[\w.,:-]+ ){0,3}(?:file|folder|directory)\b", field.help) and not field.choices
    }
    assert [flag for flag, value_name in described.items() if value_name == "TEXT"] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([name, "--help"]) == 0
    _, marker, block = capsys.readouterr().out.partition("\nExample:\n")
    lines = joined_lines(block)
    assert marker and lines and all(" pocketbert " in f" {line}" for line in lines)
    for line in lines:
        check_parses(line[line.index("pocketbert ") :])


def test_no_command_imports_anything_heavy() -> None:
    program = f"""
import sys
from pocketbert import cli
from pocketbert.commands import COMMANDS, completion
for name in COMMANDS:
    cli.main([name, "--help-all"])
    heavy = [each for each in {HEAVY!r} if each in sys.modules]
    assert not heavy, f"{{name}} imports {{heavy}}"
for shell in ("bash", "zsh", "fish"):
    completion.script(shell)
assert not [each for each in {HEAVY!r} if each in sys.modules]
"""
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize("line", variants(), ids=" ".join)
def test_config_file_repeats_a_command_line(line: tuple[str, ...], tmp_path: Path) -> None:
    command = Command(line[0], line[1:])
    arguments = [*required(command), *line[1:]]
    for field in command.fields:
        if field.positional or field.name in ("config", "overwrite", "method", "device"):
            continue
        text = other_value(field)[0] if field.repeated else format_value(field, other_value(field))  # type: ignore[index]
        if _parsed(line[0], [*arguments, f"--{field.flag}={text}"]) is not None:
            arguments.append(f"--{field.flag}={text}")
    options = parse(line[0], arguments)
    (tmp_path / "run.toml").write_text(options.to_toml(), encoding="utf-8")
    positional = [argument for argument in arguments if not argument.startswith("-")]
    again = parse(line[0], [*positional, f"--config={tmp_path / 'run.toml'}"])
    assert {**again.values, "config": None} == options.values


def test_run_file_has_no_serial_number() -> None:
    arguments = ["--teacher=t", "--student=s", "--output=o", "--max-latency-ms=3"]
    assert 'device = "host"' in parse("search", arguments).to_toml()
    content = parse("search", [*arguments, "--device=PIXEL1"]).to_toml()
    assert "PIXEL1" not in content and "\n# Pass --device again: no file has a serial number.\n" in content


@pytest.mark.parametrize("line", variants(), ids=" ".join)
def test_empty_list_is_refused(line: tuple[str, ...], tmp_path: Path) -> None:
    command = Command(line[0], line[1:])
    arguments = [*required(command), *line[1:]]
    for field in command.fields:
        if not field.many or field.repeated or field.positional:
            continue
        if field.name == "label_column":
            # A file without labels.
            assert parse(line[0], [*arguments, "--label-column="]).values[field.name] == ()
            continue
        for empty in ("", " "):
            with pytest.raises(UserError, match=f"--{field.flag}={empty}: must "):
                parse(line[0], [*arguments, f"--{field.flag}={empty}"])
        if field.default == ():
            (tmp_path / "run.toml").write_text(f"{field.flag} = []\n", encoding="utf-8")
            assert parse(line[0], [*arguments, f"--config={tmp_path / 'run.toml'}"]).values[field.name] == ()


def test_run_file_has_the_resolved_length() -> None:
    for flags, length in (([], 384), (["--max-length=128"], 128)):
        options = parse("finetune", ["--model=m", "--output=o", *flags])
        assert finetune.training_config(options, TaskConfig(kind="span")).max_length == length
        assert f"max-length = {length}\n" in options.to_toml()


def test_flags_override_the_config_file(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('command = "finetune"\nmodel = "m"\noutput = "a"\nepochs = 5\ngrid = ["epochs=1,2", "bert"]\n')
    options = parse("finetune", [f"--config={path}", "--output=b", "--grid=batch_size=4,8"]).values
    assert (options["model"], options["output"], options["epochs"]) == ("m", "b", 5)
    assert options["grid"] == ("batch_size=4,8",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("epoch = 3", "no option 'epoch' (did you mean 'epochs'?)"),
        ("epochs = 'many'", "--epochs=many: must be a whole number"),
        ("epochs = {a = 1}", "epochs must be text, a number, true, false or a list"),
        ("epochs = ", "must be a TOML file; received"),
        ('command = "distill"', "has options of pocketbert distill; received pocketbert finetune"),
        ('config = "x.toml"', "cannot name another with config"),
        ("config = [1]", "cannot name another with config"),
        (f"epochs = {'9' * 5_000}", "must be a TOML file; received Exceeds the limit"),
        (f"epochs = {'[' * 5_000}", "nest too deeply"),
        ("epochs = [[1]]", "epochs must be text, a number, true, false or a list"),
    ],
)
def test_bad_config_file_is_refused(
    content: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.toml").write_text(content)
    assert message in refused(["finetune", f"--config={tmp_path / 'run.toml'}", "--model=m", "--output=o"], capsys)


@pytest.mark.parametrize("path", ["/dev/zero", "{}/pipe", "{}", "n" * 300, "{}/absent"])
def test_config_must_be_a_plain_file(path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    message = refused(["finetune", f"--config={path.format(tmp_path)}", "--model=m", "--output=o"], capsys)
    assert "the file cannot be read" in message


@pytest.mark.parametrize("text", ["n" * 300, "a\0b"], ids=["long", "null"])
@pytest.mark.parametrize("line", variants(), ids=" ".join)
def test_odd_texts_are_refused_in_one_line(
    line: tuple[str, ...],
    text: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    command = Command(line[0], line[1:])
    for field in command.fields:
        if field.kind == "str" and not field.choices and line[0] not in ("quickstart", "completion"):
            arguments = [argument for argument in required(command) if not argument.startswith(f"--{field.flag}=")]
            arguments = arguments[:0] if field.positional else [*arguments, f"--{field.flag}={text}"]
            refused([*line, *arguments, *([text] if field.positional else [])], capsys)
    assert not list(tmp_path.iterdir())


def test_messages_have_no_control_characters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "\\u001b[2Jx" in refused(["verify", "\x1b[2Jx"], capsys)
    assert "\\u009b" in refused(["finetune", f"--config={tmp_path}\x9bx"], capsys)
    log_info("a\x1b[31mb")
    with bar(1, "c\x1b]0;d", "step") as shown:
        shown.update()
    stderr = capsys.readouterr().err
    assert "a\\u001b[31mb\n" in stderr and "c\\u001b]0;d" in stderr and "\x1b]" not in stderr


def test_terminal_gets_no_control_characters() -> None:
    line = "label \x1b[2J\x9b31m\tnaïve\r\n"
    code = f"from pocketbert import cli; cli.main = lambda _: print({line!r}, end='') or 0; cli.run()"
    leader, follower = os.openpty()
    subprocess.run([sys.executable, "-c", code], stdout=follower, check=True)
    os.close(follower)
    shown = b""
    # Linux ends a closed terminal with an error.
    with contextlib.suppress(OSError):
        while part := os.read(leader, 4096):
            shown += part
    assert shown.replace(b"\r\r\n", b"\r\n") == "label \\u001b[2J\\u009b31m\tnaïve\r\n".encode()
    piped = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert piped.stdout == line.encode()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("destil", "no command 'destil' (did you mean 'distill'?); the commands are quickstart"),
        (
            "presets --no-such-flag",
            "no flag --no-such-flag; --help-all lists all options (see",
        ),
        ("finetune --epoch=3", "no flag --epoch (did you mean '--epochs'?)"),
        ("presets stray", "write options as --name=value; received stray"),
        ("export", "--model is required; received none; --output is required; received none"),
        ("finetune --model=m --output=o --epochs=3.5", "--epochs=3.5: must be a whole number"),
        (
            "finetune --model=m --output=o --schedule=liner",
            "must be one of linear, cosine, constant (did you mean 'linear'?)",
        ),
        ("finetune --model=m --output=o --seeds=1,two", "--seeds=1,two: must be a list of whole numbers with commas"),
        ("finetune --model=m --output=o --epochs=0", "epochs must be positive; received 0"),
        ("finetune --model=m --output=o --task=sst-2 --data=d", "no task 'sst-2' to train on (did you mean 'sst2'?)"),
        ("distill --method=tinybrt --output=o", "no distillation method 'tinybrt' (did you mean 'tinybert'?)"),
        ("export --model=m --output=o --recipe=dynamic_w8", "(did you mean 'dynamic_wi8'?)"),
        ("fetch all-minlm --output=o", "received all-minlm (did you mean 'all-minilm'?)"),
        ("bench no/such/bundle", "a folder written by pocketbert export; received no/such/bundle"),
        ("completion tcsh", "must be one of bash, zsh, fish; received tcsh"),
    ],
)
def test_bad_input_is_one_line(line: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in refused(line.split(), capsys)


def test_unknown_preset_names_the_closest() -> None:
    from pocketbert.presets import preset

    with pytest.raises(UserError, match=r"did you mean 'mobilebert_tiny'\?"):
        preset("mobilbert_tiny")


def test_bad_input_exits_with_2() -> None:
    answer = pocketbert("finetune", "--epoch=3")
    assert (answer.returncode, answer.stdout, answer.stderr.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("arguments", ["presets", "--help"])
def test_closed_pipe_is_no_error(arguments: str) -> None:
    # Closing the pipe before anything is read is what `head` does, without its timing.
    part = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{shlex.quote(str(POCKETBERT))} {arguments} | (exec <&-)"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (part.returncode, part.stderr) == (0, "")


@pytest.mark.parametrize(
    ("raised", "code", "message"),
    [
        (UserError("a rule;\n  what was received"), 2, "a rule; what was received"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_exit_codes(
    raised: BaseException,
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("pocketbert.commands.presets.run", failing(raised))
    assert cli.main(["presets"]) == code
    printed = capsys.readouterr()
    assert printed.out == "" and message in printed.err and printed.err.count("\n") == 1


def failing(raised: BaseException) -> Callable[[Options], None]:
    def fail(_: Options) -> None:
        raise raised

    return fail


def test_negative_result_exits_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pocketbert.commands.presets.run", lambda _: 1)
    assert cli.main(["presets"]) == 1


def test_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pocketbert.commands.presets.run", failing(ValueError("an error of ours")))
    with pytest.raises(ValueError, match="an error of ours"):
        cli.main(["presets"])


def test_presets_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["presets", "--format=json"]) == 0
    assert {"mobilebert_tiny", "tinybert_4l_312d"} < {row["name"] for row in json.loads(capsys.readouterr().out)}
