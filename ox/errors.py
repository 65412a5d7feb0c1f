"""Every error that ox raises, and the one format in which all of them speak.

    OxError
    ├── ShapeError          (ValueError)     shapes that do not fit
    ├── DTypeError          (TypeError)      element types that do not fit
    ├── ArgumentError       (ValueError)     an argument out of range or of the wrong kind
    │   ├── CallError       (TypeError)      an argument that the function does not have, or a missing one
    │   └── RegistrationError (KeyError)     a name under which a module cannot register anything
    ├── BoundsError         (IndexError)     an index outside a dimension
    ├── GradientError       (RuntimeError)   autograd: freed graphs, in-place changes, missing gradients
    ├── LinAlgError         (RuntimeError)   a matrix that is singular or not positive-definite
    ├── DeviceError         (RuntimeError)   a device or its runtime is not there
    │   └── OutOfMemoryError (MemoryError)   a GPU has no memory left
    ├── DistributedError    (RuntimeError)   processes that should work together do not
    ├── WorkerError         (RuntimeError)   a worker of a loader raised, died or hangs
    ├── RecordError         (RuntimeError)   code that cannot be recorded: a branch on data, a baked-in size
    ├── CompileError        (RuntimeError)   a call that `ox.compile(fullgraph=True)` cannot record as one graph
    ├── ExportError         (RuntimeError)   a file that could not be written or proven
    ├── LoadError           (ValueError)     a file that is damaged, malicious or not what was expected
    │   ├── MissingFileError (FileNotFoundError)  there is no such file
    │   ├── FolderError     (IsADirectoryError)  a folder instead of a file
    │   └── AccessError     (PermissionError)    a file that this user may not read
    ├── WriteError          (OSError)        a file that the system does not let us write
    ├── TrainError          (RuntimeError)   a run that cannot start, go on or resume
    ├── RecipeError         (ValueError)     an unknown recipe, or a file that is not a recipe file
    └── ServeError          (RuntimeError)   a request or model that the server refuses (carries an HTTP status)

Each is also the built-in class in brackets, so code that catches `ValueError` or `TypeError` keeps working, and a
`RuntimeError`, which is what most errors of PyTorch are.
"""

from __future__ import annotations

from collections.abc import Callable
from re import sub
from typing import Any


def _nowhere() -> str | None:
    return None


call_site: Callable[[], str | None] = _nowhere  # ox.core.explain, on a higher floor, puts its own here


class OxError(RuntimeError):
    """What happened, where, what was expected, what came, and what to try.

    Args:
        what: one sentence that names the thing and the problem.
        where: the user's line, module, model or input. By default the running modules and the innermost line outside
            ox, if ox raises the error and there is such a line. An empty string: no place.
        expected: what would have been right.
        got: what came instead.
        hint: what to try next; shown as ``try``.
        extra: further labelled lines, shown in order after ``in``.
    """

    exit_code = 1

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        expected: str | None = None,
        got: str | None = None,
        hint: str | None = None,
        extra: dict[str, str] | None = None,
    ) -> None:
        self.what, self.expected, self.got, self.hint = what, expected, got, hint
        self.where = call_site() if where is None else where
        self.extra = dict(extra or {})
        super().__init__(what)

    def fields(self) -> dict[str, str]:
        """The labelled lines that are present, in the order in which they are shown."""
        lines = {"in": self.where, **self.extra, "expected": self.expected, "got": self.got, "try": self.hint}
        return {label: text for label, text in lines.items() if text}

    def __str__(self) -> str:
        fields = self.fields()
        width = max([6, *map(len, fields)])
        body = [f"  {label:<{width}} " + text.replace("\n", "\n" + " " * (width + 3)) for label, text in fields.items()]
        return "\n".join([self.what, *body])

    def one_line(self) -> str:
        """The same in one sentence, for HTTP replies and log lines; line ends in it are written as escapes."""
        text = "; ".join([self.what, *(f"{label} {text}" for label, text in self.fields().items())])
        if text.isprintable():
            return text
        return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


class ShapeError(OxError, ValueError):
    """Shapes that do not fit together or do not fit what an operator or a file declares."""


class DTypeError(OxError, TypeError):
    """An element type that an operator, a module or a file does not take."""


class PairsError(DTypeError):
    """What tensors of pairs, which stand for complex numbers, do not take."""


class ArgumentError(OxError, ValueError):
    """An argument that is out of range or of the wrong kind."""


class CallError(ArgumentError, TypeError):
    """A call that does not fit the function: an argument that it does not have, one given twice, or a missing one."""


class RegistrationError(ArgumentError, KeyError):
    """A module cannot register a parameter, buffer or module under a name: an attribute has it, or it has a dot."""


class BoundsError(OxError, IndexError):
    """An index outside a dimension, or an index of a kind that tensors do not take."""


class GradientError(OxError, RuntimeError):
    """Autograd cannot go on: a freed graph, a saved tensor changed in place, an operator without a gradient."""


class LinAlgError(OxError, RuntimeError):
    """A matrix has not what an algorithm needs of it: it is singular, or not positive-definite."""


class DeviceError(OxError, RuntimeError):
    """A device, or the library that drives it, is missing, or tensors live on different devices."""


class OutOfMemoryError(DeviceError, MemoryError):
    """A GPU, or the part of it that this process may use, has no memory left."""


class DistributedError(OxError, RuntimeError):
    """Processes that should work together do not: one is missing, has ended, waits elsewhere, sent something else."""


class WorkerError(OxError, RuntimeError):
    """A worker of a loader raised, died or hangs. What a worker raised is of the class of that error, too."""


class RecordError(OxError, RuntimeError):
    """Code that cannot be recorded as a graph."""


class CompileError(OxError):
    """A call that `ox.compile(fullgraph=True)` cannot record as one graph, or a backend that there is not."""


class ExportError(OxError, RuntimeError):
    """A model file could not be written, or did not prove itself. `note` says what became of the file."""

    note: str | None = None

    def __str__(self) -> str:
        return super().__str__() + (f"\n  {self.note}" if self.note else "")


class LoadError(OxError, ValueError):
    """A file is damaged, malicious or of another kind than expected. A long string of it is shown by its start."""

    def __init__(self, what: str, **fields: Any) -> None:
        super().__init__(_shortened(what), **fields)

    def fields(self) -> dict[str, str]:
        return {label: _shortened(text) for label, text in super().fields().items()}


def _shortened(text: str) -> str:
    """Without the ends of very long words, and of a text that is very long all the same."""
    text = sub(r"(\S{200})\S{20,}", r"\1…", text)
    return text if len(text) <= 2000 else text[:2000] + "…"


class MissingFileError(LoadError, FileNotFoundError):
    """There is no file of that name."""


class FolderError(LoadError, IsADirectoryError):
    """A folder is where a file was expected."""


class AccessError(LoadError, PermissionError):
    """A file that this user may not read."""


def first_line(error: BaseException) -> str:
    """The first line of an error's message that is not blank; the name of its class where it has no message."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def cannot_open(path: object, error: OSError, what: str = "cannot be opened", **fields: Any) -> LoadError:
    """The error for a file that the system does not open: a LoadError, and the class of `error` where a program is
    likely to catch that."""
    kinds = {FileNotFoundError: MissingFileError, IsADirectoryError: FolderError, PermissionError: AccessError}
    kind = next((kinds[each] for each in kinds if isinstance(error, each)), LoadError)
    made = kind(f"{path} {what}", got=error.strerror or str(error), **fields)
    if isinstance(made, OSError):
        made.errno, made.strerror, made.filename = error.errno, error.strerror, str(path)
    return made


class WriteError(OxError, OSError):
    """A file cannot be written: the folder is not there or not writable, or the disk is full."""


class TrainError(OxError, RuntimeError):
    """A training run cannot start, go on or resume."""


class RecipeError(OxError, ValueError):
    """A recipe is unknown, or a file is not a recipe file."""


class ServeError(OxError, RuntimeError):
    """The server refuses a request or a model. `status` is the HTTP status that says so.

    `retry_after` is how many seconds a client that may try again (429, 503) had better wait. It names no line by
    default: the line that runs the server did not send the request.
    """

    status = 400

    def __init__(
        self, what: str, *, where: str = "", status: int = 400, retry_after: float = 1.0, **fields: str | None
    ) -> None:
        super().__init__(what, where=where, **fields)  # type: ignore[arg-type]
        self.status, self.retry_after = status, retry_after
