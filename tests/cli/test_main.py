"""The ox command itself: lazy, and speaking one error format with fitting exit codes."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
import typer
from rich.console import Console
from rows import rows

from ox.errors import LoadError, ShapeError
from ox_cli import main as cli


def run_main(*arguments: str) -> int:
    return cli.main(list(arguments))


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch):
    """Puts a function in the place of `ox predict`."""

    def install(function):
        module = types.ModuleType("ox_cli.predict")
        module.predict = function
        monkeypatch.setitem(sys.modules, "ox_cli.predict", module)

    return install


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main("--help") == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in cli.COMMANDS)


def test_help_loads_nothing_heavy() -> None:
    code = "import sys; from ox_cli.main import main; assert main(['--help']) == 0; print('|', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    loaded = set(done.stdout.rpartition("|")[2].split())
    heavy = {"ox", "numpy", "onnx", "onnxruntime", "matplotlib", "tensorboardX", "httptools", "uvloop", "safetensors"}
    assert not loaded & heavy
    assert not {name for name in loaded if name.startswith("ox_cli.")} - {"ox_cli.main"}


@rows("name", list(cli.COMMANDS))
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main(name, "--help") == 0
    assert f"Usage: ox {name}" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    import ox

    assert run_main("--version") == 0
    assert capsys.readouterr().out == f"ox {ox.__version__}\n"


def test_nothing_shows_help_and_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main() == 2
    shown = capsys.readouterr()
    assert "Usage: ox" in shown.out
    assert "Error" not in shown.err


def test_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main("trian") == 2
    assert capsys.readouterr().err == (
        "UsageError: No such command 'trian'. Did you mean 'train'?\n  try    ox --help\n"
    )


def test_unknown_option_points_to_the_command(command, capsys: pytest.CaptureFixture[str]) -> None:
    command(lambda: None)
    assert run_main("predict", "--nope") == 2
    assert capsys.readouterr().err == "UsageError: No such option: --nope\n  try    ox predict --help\n"


def test_an_ox_error_is_shown_as_it_speaks(command, capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> None:
        raise ShapeError("it does not fit", where="here.py:3", expected="[1]", got="[bold]", hint="another")

    command(fails)
    assert run_main("predict") == 1
    assert capsys.readouterr().err == (
        "ShapeError: it does not fit\n  in       here.py:3\n  expected [1]\n  got      [bold]\n  try      another\n"
    )


def test_an_error_brings_its_exit_code(command) -> None:
    class OwnError(ShapeError):
        exit_code = 7

    def fails() -> None:
        raise OwnError("no")

    command(fails)
    assert run_main("predict") == 7


def test_an_unforeseen_error_is_short_and_says_how_to_see_more(
    command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise KeyError("weights")

    command(fails)
    monkeypatch.delenv("OX_TRACEBACK", raising=False)
    assert run_main("predict") == 1
    shown = capsys.readouterr().err
    assert shown.startswith("UnexpectedError: KeyError: 'weights'\n")
    assert f"{Path(__file__).name}:" in shown
    assert "OX_TRACEBACK=1" in shown
    assert "Traceback" not in shown

    monkeypatch.setenv("OX_TRACEBACK", "1")
    with pytest.raises(KeyError):
        run_main("predict")


def test_exit_codes_of_ends_without_an_error(command) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    def ended() -> None:
        raise typer.Exit(5)

    command(interrupted)
    assert run_main("predict") == 130
    command(ended)
    assert run_main("predict") == 5
    command(lambda: None)
    assert run_main("predict") == 0


@rows(
    ("encoding", "shown"),
    [("ascii", "1 ? ? ? ?"), ("latin-1", "1 µ · × ?"), ("cp1252", "1 µ · × ?"), ("utf-8", "1 µ · × →")],
)
def test_a_terminal_without_utf_8(command, monkeypatch: pytest.MonkeyPatch, encoding: str, shown: str) -> None:
    """Nothing fails because a sign cannot be shown, whoever writes it: print, typer or rich."""

    def predict() -> None:
        print("1 µ · × →")
        Console().print("2 µ · × →")
        sys.stderr.write("3 µ · × →")
        raise LoadError("µ · × → \udcff")

    command(predict)
    for name, errors in (("stdout", "strict"), ("stderr", "backslashreplace")):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(io.BytesIO(), encoding, errors))
    assert run_main("predict") == 1
    sys.stdout.flush(), sys.stderr.flush()
    out, err = sys.stdout.buffer.getvalue(), sys.stderr.buffer.getvalue()
    assert out.decode(encoding).splitlines()[0] == shown
    assert len(out.splitlines()) == 2 and b"LoadError" in err and b"Traceback" not in err


def test_a_terminal_in_the_locale_c() -> None:
    code = r"from ox_cli.main import main; main(['--version']); print('\u00b5 \u2192 \udcff')"
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    environment.pop("PYTHONIOENCODING", None)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, timeout=300)
    assert done.returncode == 0 and done.stderr == b"" and len(done.stdout.splitlines()) == 2


def test_no_colour_where_nobody_looks(command) -> None:
    done = subprocess.run([sys.executable, "-m", "ox_cli", "trian"], capture_output=True, timeout=300)
    assert done.returncode == 2
    assert b"\x1b" not in done.stderr + done.stdout


def test_a_closed_pipe_is_no_crash() -> None:
    shell = f"{sys.executable} -m ox_cli --help | true"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=300)
    assert done.stderr == ""
