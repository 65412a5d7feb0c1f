"""ox doctor tells the truth, also on machines that are not this one."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import util
from pathlib import Path

import pytest
from rows import rows

from ox.devices import compiled, cuda, cudnn_libraries, machine, probe
from ox.devices.probe import CPU, CUDA, Probe
from ox.distributed import launcher
from ox.errors import DeviceError
from ox.installation import install_command
from ox.kernels import library
from ox_cli import doctor
from ox_cli.main import main


def lines_of(report: tuple[list[tuple[str, str]], bool]) -> dict[str, str]:
    """The lines of each label, joined."""
    lines: dict[str, str] = {}
    for label, text in report[0]:
        lines[label] = f"{lines[label]}\n{text}" if label in lines else text
    return lines


@pytest.fixture
def no_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where MPI is not the subject: it is tried by two processes, which start for seconds."""
    monkeypatch.setattr(launcher, "check_connection", lambda: "not tried")


def test_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "python 3." in shown
    assert "onnxruntime 1." in shown
    assert f"threads   {machine.threads()} (" in shown
    assert "cpu       CPUExecutionProvider, loads" in shown
    assert "\ncuda " in shown
    assert "\nmpi " in shown
    assert "two processes connected" in shown or "mpi4py is not installed" in shown


@pytest.mark.usefixtures("no_ranks")
def test_where_the_kernels_come_from() -> None:
    said = lines_of(doctor.report())["kernels"]
    library = compiled.library()
    if library is None:
        assert said.startswith("none: ")
    else:
        assert said.startswith(("compiled for this processor by ", "prebuilt for "))
        assert said == f"{library.origin} · {library.path}"


@pytest.mark.filterwarnings("ignore:compiled kernels")
@rows(
    ("environment", "why", "way_out"),
    [
        ({"OX_KERNELS": "off"}, "they are switched off by OX_KERNELS=off", "unset OX_KERNELS"),
        ({"CXX": "/nowhere/c++"}, "the compiler /nowhere/c++ does not run", "unset $CXX"),
        ({"CXX": "", "PATH": "/nowhere"}, "no C++ compiler is installed", install_command("compile")),
    ],
)
def test_why_there_are_no_kernels(
    environment: dict[str, str], why: str, way_out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "_found", library._found.__wrapped__)  # as in a new process
    monkeypatch.setattr(library, "_reason", [])
    monkeypatch.setattr(compiled, "library", compiled.library.__wrapped__)
    for name, value in {"OX_CACHE": str(tmp_path), **environment}.items():
        monkeypatch.setenv(name, value)
    said = doctor._kernels()
    if "prebuilt" in said or "ziglang" in said:
        pytest.skip("this installation has kernels without a compiler of the system")
    assert why in said and "takes 1.2 to 3 times as long" in said and way_out in said


def test_without_a_runtime_it_names_the_extra_and_fails() -> None:
    """An import blocker stands for a base install without extras."""
    code = (
        "import sys; sys.modules['onnxruntime'] = sys.modules['mpi4py'] = None\n"
        "from importlib import metadata; real = metadata.version\n"
        "def version(name):\n"
        "    if name.startswith('onnxruntime'): raise metadata.PackageNotFoundError(name)\n"
        "    return real(name)\n"
        "metadata.version = version\n"
        "from ox_cli.main import main; sys.exit(main(['doctor']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1, done.stderr
    assert "no onnxruntime" in done.stdout
    assert install_command("cpu") in done.stdout


@pytest.mark.slow
def test_both_runtimes_installed_is_named(tmp_path: Path) -> None:
    for name in ("onnxruntime", "onnxruntime_gpu"):
        folder = tmp_path / f"{name}-1.31.1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.31.1\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "ox_cli", "doctor"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert "conflict  onnxruntime and onnxruntime-gpu overwrite each other's files" in done.stdout, done.stderr
    assert "uninstall onnxruntime onnxruntime-gpu" in done.stdout


@pytest.mark.usefixtures("no_ranks")
def test_a_broken_runtime_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "probe", lambda provider: Probe(provider, False, "cannot map libonnxruntime.so"))
    report = doctor.report()
    assert not report[1]
    assert "does not work: cannot map libonnxruntime.so" in lines_of(report)["cpu"]


@pytest.mark.usefixtures("no_ranks")
def test_a_gpu_without_its_packages_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "nvidia_driver", lambda: machine.Driver((12, 8), ("A card",)))
    text = lines_of(doctor.report())["cuda"]
    assert text.startswith("cuda:0 A card · driver for CUDA 12.8 · ")
    assert "\nonnxruntime-gpu is not installed · " in text
    assert install_command("cuda12") in text
    assert text.endswith(
        "ox-onnx[cuda12] brings onnxruntime-gpu, cupy-cuda12x, and NVIDIA's libraries of CUDA 12 and cuDNN 9"
    )


@pytest.mark.usefixtures("no_ranks")
def test_what_a_gpu_lacks_is_said_in_advance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "nvidia_driver", lambda: machine.Driver((12, 8), ("T4", "A100")))
    monkeypatch.setattr(cuda, "available", lambda: True)
    monkeypatch.setattr(cuda, "device_count", lambda: 2)
    monkeypatch.setattr(cuda, "device_name", lambda number: ("T4", "A100")[number])
    monkeypatch.setattr(cuda, "capability", lambda number: ((7, 5), (8, 0))[number])
    free = {"cuda:0": 15 << 30, "cuda:1": 300 << 20}
    monkeypatch.setattr(cuda, "memory", lambda device: cuda.Memory(0, 0, free[device], 16 << 30, 16 << 30))
    two = "this process has loaded cuDNN 9.20.0 (/a/libcudnn.so.9) and 9.10.2 (/b/libcudnn.so.9)"
    monkeypatch.setattr(cudnn_libraries, "conflict", lambda: two)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    text = lines_of(doctor.report())["cuda"]
    assert f"\n{two} · {cudnn_libraries.HINT}" in text
    cards = [
        "cuda:0 T4 (compute capability 7.5, 15.0 of 16.0 GiB free)",
        "cuda:1 A100 (compute capability 8.0, 0.3 of 16.0 GiB free)",
    ]
    assert text.startswith(", ".join(cards))
    assert (
        "\ncuda:0 does not multiply bfloat16 · float16: ox train --amp fp16" in text and "cuda:1 does not" not in text
    )
    assert "\ncuda:1 is nearly full: 300 of 16,384 MiB free · nvidia-smi" in text and "cuda:0 is nearly" not in text
    assert "\nCUDA_VISIBLE_DEVICES=2,3: other GPUs of this machine are hidden" in text


@pytest.mark.usefixtures("no_ranks")
def test_a_gpu_whose_provider_does_not_load_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "nvidia_driver", lambda: machine.Driver((13, 0), ("A card",)))
    monkeypatch.setattr(probe, "runtime_distributions", lambda: {"onnxruntime-gpu": "1.31.1"})

    def answer(provider: str) -> Probe:
        return Probe(provider, provider == CPU, None if provider == CPU else "libcudnn.so.9 is not installed")

    monkeypatch.setattr(probe, "probe", answer)
    text = lines_of(doctor.report())["cuda"]
    assert f"{CUDA}, does not load: libcudnn.so.9 is not installed" in text
    assert "cuDNN" in text.rpartition(" · ")[2]
    assert install_command("cuda13") in text


@pytest.mark.usefixtures("no_ranks")
def test_without_a_driver_it_says_why_and_what_the_extra_brings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "nvidia_driver", lambda: None)
    monkeypatch.setattr(machine, "nvidia_driver_error", lambda: "its cuInit gives error 100: no device")
    first, second = lines_of(doctor.report())["cuda"].splitlines()
    assert first.startswith("no NVIDIA driver works here: its cuInit gives error 100: no device · a driver of version")
    assert install_command("cuda13") in second and "cuDNN 9: about 2.1 GB" in second


class NoisyRuntime:
    """In the place of onnxruntime: prints what it prints where a library is missing, and chooses the CPU."""

    __file__ = __file__

    class SessionOptions:
        pass

    class InferenceSession:
        def __init__(self, *_: object, **__: object) -> None:
            text = "[E:onnxruntime] Failed to load library libonnxruntime_providers_cuda.so with error: "
            os.write(2, f"{text}libcudart.so.13: cannot open shared object file: No such file\n".encode())
            print("*************** EP Error ***************")

        def get_providers(self) -> list[str]:
            return [CPU]

    @staticmethod
    def get_available_providers() -> list[str]:
        return [CUDA, CPU]

    @staticmethod
    def preload_dlls() -> None:
        print("Failed to load libcublas.so.13")


def test_a_missing_library_is_named_and_nothing_is_printed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", NoisyRuntime)
    assert probe.probe(CUDA) == Probe(CUDA, False, "libcudart.so.13 is not installed")
    assert capfd.readouterr() == ("", "")


def test_the_cpu_provider_is_really_run() -> None:
    assert probe.probe(CPU) == Probe(CPU, True)


def test_a_provider_that_is_not_built_in_is_not_believed() -> None:
    assert not probe.probe("NoSuchExecutionProvider").loads


def test_a_damaged_runtime_is_an_error_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    import types

    from ox.devices.runtime import onnxruntime

    monkeypatch.setitem(sys.modules, "onnxruntime", types.ModuleType("onnxruntime"))
    with pytest.raises(DeviceError, match="damaged"):
        onnxruntime()


def test_two_processes_connect() -> None:
    if util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed: the extra [mpi]")
    assert launcher.check_connection() == "two processes connected"


def test_why_mpi_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    if util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed: the extra [mpi]")
    assert "exit code 1" in launcher.check_connection("false")
    assert "FileNotFoundError" in launcher.check_connection("/nowhere/python")
    monkeypatch.setattr(doctor.util, "find_spec", lambda name: None)
    assert install_command("mpi") in doctor._mpi()
