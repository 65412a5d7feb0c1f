"""`ox port`: rewrites the imports of PyTorch scripts and lists names that ox does not have."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ox.errors import OxError
    from ox.porting import Ported

SKIPPED = {"__pycache__", "node_modules", "site-packages"}


@dataclass
class Job:
    """One script: its path, the path to write (None: do not write), and the result or error."""

    path: Path
    target: Path | None
    local: frozenset[str]
    ported: Ported | None = None
    error: OxError | None = None


def port(
    paths: Annotated[list[Path], typer.Argument(help="Python files or folders.", metavar="PATH...")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write, or folder for several files.")
    ] = None,
    in_place: Annotated[bool, typer.Option("--in-place", help="Overwrite the files.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit code 1 if a name has no counterpart.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as one JSON object to stdout.")] = False,
) -> None:
    """Rewrite the imports of PyTorch scripts and list the names that have no counterpart in ox.

    Only imports are changed, and no script is run.

    Without an output option a single file is printed to stdout, and the list to stderr.

    Names inside `try` or after a check with `hasattr` are listed as guarded.
    """
    jobs = _jobs(paths, output, in_place, check or as_json)
    if sum((output is not None, in_place, check)) > 1:
        raise _usage("-o, --in-place and --check exclude each other", "use one of them")
    for job in jobs:
        _port_file(job)
    if len(jobs) == 1 and jobs[0].error:
        raise jobs[0].error
    to_stdout = not (output or in_place or check or as_json)
    if to_stdout and jobs[0].ported:
        _print(jobs[0].ported.data)
    for job in jobs:
        if job.error:
            typer.echo(job.error.one_line(), err=True)
        elif not as_json:
            _list(job, sys.stderr if to_stdout else sys.stdout)
    if as_json:
        typer.echo(json.dumps({"files": [_entry(job) for job in jobs]}))
    if any(job.error or (check and _unsupported(job)) for job in jobs):
        raise typer.Exit(1)


def _jobs(paths: list[Path], output: Path | None, in_place: bool, only_list: bool) -> list[Job]:
    """The files to read and the paths to write. Raises UsageError before anything is written."""
    several = len(paths) > 1 or paths[0].is_dir()
    files = [each for path in paths for each in _files(path)]
    if output is None:
        if several and not in_place and not only_list:
            raise _usage("several files cannot be printed to stdout", "-o FOLDER, --in-place or --check")
        return [Job(path, path if in_place else None, _local(path, below)) for path, below in files]
    if several and output.exists() and not output.is_dir():
        raise _usage(f"{output} is a file, but there are {len(files)} files to write", "-o FOLDER")
    targets = [output / below if several or output.is_dir() else output for _, below in files]
    if len(set(targets)) < len(targets):
        raise _usage("two files have the same name", "one folder at a time, or --in-place")
    return [Job(path, target, _local(path, below)) for (path, below), target in zip(files, targets, strict=True)]


def _local(path: Path, below: Path) -> frozenset[str]:
    """Local packages: those in the script's folder and in its parent folders, up to the folder on the command line."""
    folders = path.absolute().parents[: len(below.parts)]
    return frozenset(each.stem for folder in folders if folder.is_dir() for each in _modules(folder))


@cache
def _modules(folder: Path) -> list[Path]:
    return [each for each in folder.iterdir() if each.suffix == ".py" or (each / "__init__.py").exists()]


def _usage(what: str, hint: str) -> OxError:
    from ox_cli.errors import UsageError

    return UsageError(what, hint=hint)


def _files(path: Path) -> list[tuple[Path, Path]]:
    """Each file, and its path relative to the folder on the command line."""
    from ox.errors import LoadError

    if path.suffix == ".ipynb":
        raise LoadError(f"{path} is a notebook", hint=f"jupyter nbconvert --to script {path}")
    if not path.is_dir():
        return [(path, Path(path.name))]
    found = sorted(_scripts(path))
    if not found:
        raise LoadError(f"{path} contains no Python file", expected="a folder with *.py files")
    return [(each, each.relative_to(path)) for each in found]


def _scripts(folder: Path) -> Iterator[Path]:
    for name, folders, files in os.walk(folder):
        here = Path(name)
        folders[:] = [
            each for each in folders
            if not each.startswith(".") and each not in SKIPPED and not (here / each / "pyvenv.cfg").exists()
        ]  # fmt: skip
        yield from (here / each for each in files if each.endswith(".py"))


def _port_file(job: Job) -> None:
    """Ports one script and writes it; an error is stored in the job."""
    from ox.errors import LoadError, OxError
    from ox.porting import port as ported

    try:
        job.ported = ported(job.path.read_bytes(), str(job.path), job.local)
        if job.target and (job.ported.imports or job.target != job.path):
            _write(job.path, job.target, job.ported.data)
    except OxError as error:
        job.error = error
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        reason = str(getattr(error, "strerror", None) or error)
        job.error = LoadError(f"{job.path} cannot be read", got=reason, hint="an existing Python file")


def _write(path: Path, target: Path, data: bytes) -> None:
    """Writes the file atomically. Its permissions stay; a new file gets those of the script."""
    from ox.errors import WriteError
    from ox.serialization.files import write_whole

    if target.exists() and not os.access(target, os.W_OK):
        raise WriteError(f"{target} was not written", got="it is read-only", hint=f"chmod u+w {target}, or -o FILE")
    mode = (target if target.exists() else path).stat().st_mode & 0o777
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"{target.parent} could not be created", got=error.strerror, hint="-o FOLDER") from None

    def write(temporary: Path) -> None:
        temporary.write_bytes(data)

    write_whole(target, write)
    target.chmod(mode | 0o200)


def _print(data: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _unsupported(job: Job) -> int:
    """The number of names without a counterpart, not counting guarded ones."""
    return sum(not each.guarded for each in job.ported.missing) if job.ported else 0


def _list(job: Job, stream: IO[str]) -> None:
    assert job.ported is not None
    for each in job.ported.missing:
        typer.echo(f"{job.path}:{each}", file=stream)
    imports, unsupported = job.ported.imports, _unsupported(job)
    statements = f"{imports or 'no'} import{'' if imports == 1 else 's'} to rewrite"
    typer.echo(f"{job.path}: {statements}, {unsupported or 'nothing'} without a counterpart", file=stream)


def _entry(job: Job) -> dict[str, object]:
    if job.ported is None:
        return {"path": str(job.path), "error": job.error.one_line() if job.error else None}
    missing = [asdict(each) for each in job.ported.missing]
    return {"path": str(job.path), "imports": job.ported.imports, "missing": missing}
