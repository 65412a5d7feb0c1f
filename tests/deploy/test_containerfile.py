"""deploy/Containerfile, read as a builder reads it: nothing here can build an image."""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ox.serve import Server

ROOT = Path(__file__).resolve().parents[2]
KNOWN = {
    "FROM",
    "ARG",
    "WORKDIR",
    "COPY",
    "RUN",
    "ENV",
    "USER",
    "EXPOSE",
    "STOPSIGNAL",
    "HEALTHCHECK",
    "ENTRYPOINT",
    "CMD",
}
Instructions = list[tuple[str, str]]


def parse(text: str) -> Instructions:
    """(instruction, its arguments); a backslash at a line's end goes on below."""
    lines = re.sub(r"^\s*#.*\n", "", text, flags=re.M).replace("\\\n", " ").splitlines()
    return [
        (word.upper(), rest.strip())
        for word, _, rest in (line.strip().partition(" ") for line in lines if line.strip())
    ]


def flagged(rest: str) -> tuple[dict[str, str], str]:
    """--name=value in front of an instruction's arguments, and what follows."""
    flags: dict[str, str] = {}
    while match := re.match(r"--([a-z-]+)=(\S+)\s+", rest):
        flags[match[1]] = match[2]
        rest = rest[match.end() :]
    return flags, rest


def ignored(path: str) -> bool:
    """Whether .dockerignore keeps a path of the root out of the build."""
    out = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.strip()
        if pattern and not pattern.startswith("#") and fnmatch.fnmatch(path, pattern.removeprefix("!")):
            out = not pattern.startswith("!")
    return out


def problems(instructions: Instructions) -> list[str]:
    """What a builder, or somebody who is careful, would refuse."""
    found = [f"unknown instruction {word}" for word, _ in instructions if word not in KNOWN]
    stages = [rest.split()[-1] for word, rest in instructions if word == "FROM" and " AS " in rest]
    for word, rest in instructions:
        flags, plain = flagged(rest)
        if word == "COPY" and "from" in flags:
            found += [] if flags["from"] in stages else [f"no stage {flags['from']}"]
        elif word == "COPY":
            for source in shlex.split(plain)[:-1]:
                if not (ROOT / source).exists() or ignored(source):
                    found.append(f"COPY {source}: not there")
        elif word == "FROM" and not re.match(r"\S+:[\w.-]+( AS \w+)?$", rest):
            found.append(f"{rest}: an image without a tag")
        elif word in ("ENTRYPOINT", "CMD") or (word == "HEALTHCHECK" and plain.startswith("CMD")):
            try:
                json.loads(plain.removeprefix("CMD").strip())
            except ValueError:
                found.append(f"{word} runs a shell")
    last = max(place for place, (word, _) in enumerate(instructions) if word == "FROM")
    users = [rest for word, rest in instructions[last:] if word == "USER"]
    if not users or not re.fullmatch(r"[1-9]\d*(:[1-9]\d*)?", users[-1]):
        found.append("it runs as root, or as somebody whom Kubernetes cannot tell from root")
    return found


@pytest.fixture(scope="module")
def text(deploy: Path) -> str:
    return (deploy / "Containerfile").read_text()


def one(text: str, word: str) -> Any:
    """The list that the last instruction of a kind holds."""
    rest = [rest for known, rest in parse(text) if known == word][-1]
    return json.loads(flagged(rest)[1].removeprefix("CMD").strip())


def test_nothing_is_wrong_with_it(text: str) -> None:
    assert problems(parse(text)) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("COPY ox ox", "COPY oxen ox", "COPY oxen: not there"),
        ("COPY ox ox", "COPY tests tests", "COPY tests: not there"),  # ignored
        ("--from=build", "--from=built", "no stage built"),
        ("USER 65532:65532", "USER 0", "it runs as root"),
        ("USER 65532:65532", "USER ox", "it runs as root"),
        ("USER 65532:65532\n", "", "it runs as root"),
        ('ENTRYPOINT ["ox", "serve"]', "ENTRYPOINT ox serve", "ENTRYPOINT runs a shell"),
        ("EXPOSE", "EXPOSES", "unknown instruction EXPOSES"),
        ("python:3.13-slim\n", "python\n", "an image without a tag"),
    ],
)
def test_a_mistake_is_found(text: str, old: str, new: str, problem: str) -> None:
    assert old in text and any(problem in found for found in problems(parse(text.replace(old, new))))


def test_what_it_installs_exists(text: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    default = re.search(r"ARG EXTRAS=(\S+)", text)
    assert default and set(default[1].split(",")) <= set(project["optional-dependencies"])
    copied = {
        source for word, rest in parse(text) if word == "COPY" and "--from" not in rest for source in rest.split()[:-1]
    }
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    folders = {path.split("/")[0] for path in [*wheel["packages"], wheel["hooks"]["custom"]["path"]]}
    assert folders | {"pyproject.toml", project["readme"]} <= copied
    assert set(project["license-files"]) <= copied


def test_text_in_it_is_utf_8(text: str) -> None:
    """Of a base image nothing is known; the last stage says it itself, for Python and for everything else."""
    last = text[text.rindex("\nFROM ") :]
    told = dict(word.split("=", 1) for kind, rest in parse(last) if kind == "ENV" for word in shlex.split(rest))
    assert told["LANG"] == told["LC_ALL"] == "C.UTF-8"
    code = "import sys; print(sys.stdout.encoding, sys.getfilesystemencoding(), 'µ · →')"
    environment = {"LANG": told["LANG"], "LC_ALL": told["LC_ALL"]}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, timeout=300, check=True)
    assert done.stdout.decode() == "utf-8 utf-8 µ · →\n"


def test_its_command_is_one_of_ox(text: str, options: Callable[[list[str]], dict[str, Any]]) -> None:
    entry, rest = one(text, "ENTRYPOINT"), one(text, "CMD")
    assert entry == ["ox", "serve"]
    parsed = options(rest)
    assert [str(path) for path in parsed["models"]] == ["/models"] and parsed["host"] == "0.0.0.0"
    assert ("EXPOSE", str(parsed["port"])) in parse(text) and f":{parsed['port']}/" in one(text, "HEALTHCHECK")[2]


def test_its_health_check_tells_a_server_from_none(text: str, server: Server) -> None:
    python, *rest = one(text, "HEALTHCHECK")
    assert python == "python" and ":8000/" in rest[1]
    command = [sys.executable, rest[0], rest[1].replace(":8000/", f":{server.port}/")]
    assert subprocess.run(command, capture_output=True, timeout=300, check=False).returncode == 0
    dead = [sys.executable, rest[0], rest[1].replace(":8000/", ":9/")]
    assert subprocess.run(dead, capture_output=True, timeout=300, check=False).returncode != 0
