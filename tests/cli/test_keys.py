"""`ox keys`: made, listed, revoked."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rows import rows

from ox.clock import SYSTEM
from ox.serve.access import Guard, keyfile
from ox.serve.access.key import digest_of
from ox_cli.main import main


def test_a_key_is_made_and_shown_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "keys.toml"
    arguments = ["--name", "alice", "--models", "mlp*", "--models", "cnn", "--rate", "100", "--days", "30", str(path)]
    assert main(["keys", "new", *arguments]) == 0
    secret, said = capsys.readouterr()
    secret = secret.strip()
    assert secret.startswith("ox_") and secret not in said and secret not in path.read_text()
    (key,) = keyfile.read(path)
    assert key.digest == digest_of(secret.encode()) and key.models == ("mlp*", "cnn") and key.rate == 100
    assert key.actions == ("infer", "read") and key.expires is not None
    assert timedelta(days=29) < key.expires - datetime.now(UTC) <= timedelta(days=30)
    assert Guard(path, clock=SYSTEM).check(secret.encode(), "infer", "mlp2", "") == "alice"


@pytest.mark.parametrize("models", [["--models", "a, mlp*"], ["--models", "a", "--models", "mlp*,"]])
def test_models_with_commas(tmp_path: Path, capsys: pytest.CaptureFixture[str], models: list[str]) -> None:
    path = tmp_path / "keys.toml"
    assert main(["keys", "new", "--name", "alice", *models, str(path)]) == 0
    secret = capsys.readouterr().out.strip().encode()
    assert keyfile.read(path)[0].models == ("a", "mlp*")
    assert [Guard(path, clock=SYSTEM).check(secret, "infer", model, "") for model in ("a", "mlp2")] == ["alice"] * 2


def test_list_and_revoke(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "keys.toml"
    for name, actions in (("alice", "infer"), ("bob", "infer, manage")):
        assert (
            main(["keys", "new", "--name", name, "--actions", actions, "--rate", "5", "--burst", "9", str(path)]) == 0
        )
    capsys.readouterr()
    assert main(["keys", "list", str(path)]) == 0
    assert capsys.readouterr().out == "alice · * · infer · 5/s\nbob · * · infer manage · 5/s\n"
    assert main(["keys", "revoke", "alice", str(path)]) == 0
    assert capsys.readouterr().out == "revoked 'alice'; 1 left\n"
    assert main(["keys", "list", "--json", str(path)]) == 0
    expected = {
        "name": "bob",
        "models": ["*"],
        "actions": ["infer", "manage"],
        "rate": 5.0,
        "burst": 9.0,
        "tokens_per_minute": None,
        "expires": None,
    }
    assert json.loads(capsys.readouterr().out) == expected
    assert main(["keys", "revoke", "alice", str(path)]) == 1
    assert "there is no key 'alice'" in capsys.readouterr().err


@rows(
    ("arguments", "message"),
    [
        (["--name", "alice"], "already a key 'alice'"),
        (["--name", "a b"], "invalid name"),
        (["--name", "x", "--actions", "fly"], "'actions' has an unknown action"),
        (["--name", "x", "--models", ""], "'models' is not a list of patterns"),
        (["--name", "x", "--models", " ,"], "'models' is not a list of patterns"),
        (["--name", "x", "--rate", "-1"], "'rate' is out of range"),
        (["--name", "x", "--burst", "5"], "'burst' needs 'rate'"),
    ],
)
def test_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    path = tmp_path / "keys.toml"
    assert main(["keys", "new", "--name", "alice", str(path)]) == 0
    before = path.read_text()
    assert main(["keys", "new", *arguments, str(path)]) == 1
    assert message in capsys.readouterr().err and path.read_text() == before


def test_a_damaged_file_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "keys.toml"
    path.write_text("[keys.a]\n")
    assert main(["keys", "new", "--name", "b", str(path)]) == 1
    assert path.read_text() == "[keys.a]\n" and "has no hash" in capsys.readouterr().err
    assert main(["keys", "list", str(tmp_path / "nope.toml")]) == 1
    assert "cannot be read" in capsys.readouterr().err


def test_tokens_per_minute(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "keys.toml"
    assert main(["keys", "new", "--name", "alice", "--tokens-per-minute", "500", str(path)]) == 0
    capsys.readouterr()
    assert main(["keys", "list", str(path)]) == 0
    assert capsys.readouterr().out == "alice · * · infer read · 500 tokens/min\n"
    assert main(["keys", "new", "--name", "bob", "--tokens-per-minute", "0", str(path)]) == 1
    assert "'tokens_per_minute' is out of range" in capsys.readouterr().err
