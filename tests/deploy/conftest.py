"""What the files in deploy/ are held against: schemas, and the command line that they call."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
import typer
from onnx import TensorProto, helper

from ox.serve import ModelConfig, Server
from ox_cli.serve import serve

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def deploy() -> Path:
    return HERE.parents[1] / "deploy"


@pytest.fixture(scope="session")
def check() -> Callable[[str, Any], list[str]]:
    """What is wrong with a document of a kind."""
    import yaml
    from jsonschema import Draft202012Validator

    definitions = yaml.safe_load((HERE / "schemas.yaml").read_text())
    vendored: dict[str, Any] = {"$defs": {}}  # the projects' own schemas, see scripts/vendor_schemas.py
    for path in sorted((HERE / "vendored").glob("*.json")):
        vendored["$defs"] |= json.loads(path.read_text())["$defs"]

    def errors(kind: str, document: Any) -> list[str]:
        known = [schemas for schemas in (vendored, definitions) if kind in schemas["$defs"]]
        assert known, f"no schema of {kind}"
        validators = [Draft202012Validator({**schemas, "$ref": f"#/$defs/{kind}"}) for schemas in known]
        found = [error for validator in validators for error in validator.iter_errors(document)]
        return [f"{error.json_path}: {error.message}" for error in found]

    Draft202012Validator.check_schema(definitions)
    Draft202012Validator.check_schema(vendored)
    return errors


Parse = Callable[[list[str]], dict[str, Any]]


@pytest.fixture(scope="session")
def parser_of() -> Callable[[Callable[..., Any]], Parse]:
    """Makes of a function of the command line what its command makes of arguments; it refuses those that it does not
    have."""

    def parser(function: Callable[..., Any]) -> Parse:
        app = typer.Typer()
        app.command()(function)
        command = typer.main.get_command(app)

        def parse(arguments: list[str]) -> dict[str, Any]:
            with command.make_context(f"ox {function.__name__}", list(arguments)) as context:
                return dict(context.params)

        return parse

    return parser


@pytest.fixture(scope="session")
def options(parser_of: Callable[[Callable[..., Any]], Parse]) -> Parse:
    """What `ox serve` makes of arguments."""
    return parser_of(serve)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file whose output is `-x`."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "negative", ends[:1], ends[1:])
    path = tmp_path_factory.mktemp("models") / "negative.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


@pytest.fixture(scope="session")
def server(model: Path) -> Iterator[Server]:
    """One that runs."""
    with Server([model], options=ModelConfig(device="cpu", instances=1)) as running:
        yield running
