"""Functions that ask the machine (driver, devices, libraries, limits) are replaced in many tests. Each also has a test
in which it is asked itself, of a real library, file or process: a check that is always replaced may always be wrong."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ASKED = {  # function: the test in which nothing replaces it
    "devices/gpu/cupy_device.py:available": "devices/gpu/test_cupy_device.py:test_what_a_device_is",
    "devices/gpu/cupy_device.py:capability": "devices/gpu/test_cupy_device.py:test_what_a_device_is",
    "devices/gpu/cupy_device.py:cupy": "devices/gpu/test_cupy_device.py:test_what_a_device_is",
    "devices/gpu/cupy_device.py:device_count": "devices/gpu/test_cupy_device.py:test_what_a_device_is",
    "devices/gpu/cupy_device.py:device_name": "devices/gpu/test_cupy_device.py:test_what_a_device_is",
    "devices/gpu/cupy_device.py:memory": "devices/gpu/test_cupy_device.py:test_memory_comes_back",
    "devices/gpu/cupy_device.py:to_device": "devices/gpu/test_cupy_device.py:test_there_and_back",
    "devices/gpu/installation.py:driver_problem": "devices/gpu/test_driver_library.py:test_a_driver_with_two_devices",
    "devices/gpu/installation.py:first_problem": (
        "devices/gpu/test_installation.py:test_the_installed_packages_are_looked_at"
    ),
    "devices/gpu/cudnn_libraries.py:conflict": "devices/gpu/test_cudnn_libraries.py:test_two_wheels",
    "devices/machine.py:_process_limit": "cli/test_machine.py:test_the_tightest_limit_wins",
    "devices/machine.py:available_memory": "serve/runtime/test_memory.py:test_memory_that_is_available",
    "devices/machine.py:cgroup_quota": "cli/test_machine.py:test_quota",
    "devices/machine.py:nvidia_driver": "devices/gpu/test_driver_library.py:test_a_driver_with_two_devices",
    "devices/machine.py:nvidia_driver_error": "devices/gpu/test_driver_library.py:test_a_driver_that_does_not_start",
    "devices/machine.py:threads": "kernels/test_compiler.py:test_any_number_of_threads_is_taken",
    "devices/gpu/nvml.py:others": "devices/gpu/test_driver_library.py:test_a_driver_with_two_devices",
    "devices/onnxruntime/probe.py:missing_library": (
        "devices/onnxruntime/test_probe.py:test_a_library_that_the_provider_needs"
    ),
    "devices/onnxruntime/probe.py:preload": "devices/onnxruntime/test_probe.py:test_the_provider_of_this_machine",
    "devices/onnxruntime/probe.py:probe": "cli/test_doctor.py:test_the_cpu_provider_is_really_run",
    "devices/onnxruntime/probe.py:runtime_distributions": "cli/test_doctor.py:test_both_runtimes_installed_is_named",
    "distributed/launcher.py:check_connection": "cli/test_doctor.py:test_two_processes_connect",
    "distributed/mpi.py:library": "distributed/test_launch.py:test_a_module",
    "distributed/nccl.py:library": "cuda/test_nccl_ranks.py:test_on_both_ranks",
    "kernels/compiler.py:_check_loads": "kernels/test_compiler.py:test_a_compiler_that_makes_no_library_is_refused",
    "kernels/compiler.py:find_compiler": "kernels/test_compiler.py:test_the_command_of_the_environment_comes_first",
    "ray/cluster.py:_check": "ray/test_address.py:test_something_else_listens",
}
# Of these modules, functions that start or write something, and ask nothing
WORK = (
    "kernels/compiler.py:cache_folder",
    "kernels/compiler.py:library",
    "kernels/compiler.py:run",
    "ray/cluster.py:connect",
)
MODULES = sorted({name.partition(":")[0] for name in ASKED})


@cache
def functions() -> dict[tuple[str, str], str]:
    """(module, name) by which a function is reached, there and where it is imported, and which one that is."""
    dotted = {f"ox.{module.removesuffix('.py').replace('/', '.')}": module for module in MODULES}
    found, imported, aliases = {}, {}, dict[str, str]()
    for path in (ROOT / "ox").rglob("*.py"):
        text, module = path.read_text(), path.relative_to(ROOT / "ox").as_posix()
        if module in MODULES:
            names = (node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef))
            found.update({(path.stem, name): f"{module}:{name}" for name in names})
        if any(name in text for name in dotted):  # few of all files need to be parsed
            for node in ast.walk(ast.parse(text)):
                if not isinstance(node, ast.ImportFrom):
                    continue
                aliases.update(
                    {
                        each.asname: dotted[name]
                        for each in node.names
                        if each.asname and (name := f"{node.module}.{each.name}") in dotted
                    }
                )
                if node.module in dotted:
                    origin = dotted[node.module]
                    imported.update(
                        {(path.stem, each.asname or each.name): f"{origin}:{each.name}" for each in node.names}
                    )
    for alias, module in aliases.items():  # names that other modules give it: `import cupy_device as cuda`
        found |= {(alias, key[1]): which for key, which in found.items() if which.startswith(f"{module}:")}
    return found | {key: which for key, which in imported.items() if which in found.values()}


def replaced(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Module and name of what `monkeypatch.setattr` replaces."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
            where, name = (ast.unparse(each).strip("'\"") for each in [*node.args, ast.Constant("")][:2])
            words = where.split(".") + [name] * (not isinstance(node.args[0], ast.Constant))
            if len(words) > 1:
                yield words[-2], words[-1]


def test_what_is_replaced_is_also_asked(subtests: pytest.Subtests) -> None:
    known, seen = functions(), set[str]()
    for text in (path.read_text() for path in (ROOT / "tests").rglob("*.py")):
        if ".setattr(" in text:
            seen |= {known[key] for key in replaced(ast.parse(text)) if key in known}
    for name in sorted(seen):
        with subtests.test(name):
            assert name in (*ASKED, *WORK), "replaced in tests: in which is it asked?"
    assert seen >= set(ASKED), "these are replaced nowhere"


def test_nothing_is_replaced_where_it_is_asked(subtests: pytest.Subtests) -> None:
    known = functions()
    for name, where in ASKED.items():
        with subtests.test(name):
            path, _, test = where.partition(":")
            tree = ast.parse((ROOT / "tests" / path).read_text())
            (found,) = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == test)
            assert name not in {known.get(key) for key in replaced(found)}
