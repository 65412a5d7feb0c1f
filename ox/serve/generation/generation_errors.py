"""Why a text is not completed."""

from __future__ import annotations

from ox.errors import ServeError


def failed(error: BaseException) -> ServeError:
    return ServeError("the generation engine failed", status=500, got=str(error)[:200])


def unloaded() -> ServeError:
    return ServeError("the model has just been unloaded", status=503, hint="again in a moment")


def no_scores() -> ServeError:
    return ServeError("the model gives no scores", status=500, expected="finite numbers", got="NaN or infinity",
                      hint="weights that are finite")  # fmt: skip


def late() -> ServeError:
    return ServeError("the text was not complete in time", status=504, hint="a later deadline, or fewer tokens")


def not_started(seconds: float) -> ServeError:
    return ServeError("the server is busy", status=503, expected=f"a start within {seconds:g} s (--deadline-ms)",
                      got="other texts run still", hint="again in a moment")  # fmt: skip
