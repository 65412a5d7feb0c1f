"""`ox keys`: the API keys of `ox serve --keys FILE`. A running server follows every change."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Make, list and revoke API keys of `ox serve`.")

File = Annotated[Path, typer.Argument(help="The key file, a TOML.", metavar="FILE")]


@app.command("new")
def new_key(
    file: File,
    name: Annotated[str, typer.Option(help="Whom it belongs to; logs show it.")],
    models: Annotated[
        list[str] | None, typer.Option(help="Patterns of model names, with commas; may be repeated. All of them.")
    ] = None,
    actions: Annotated[str, typer.Option(help="Of infer, read, manage and metrics, with commas.")] = "infer,read",
    rate: Annotated[float | None, typer.Option(help="Calls a second; no limit of its own.")] = None,
    burst: Annotated[float | None, typer.Option(help="Calls at once; as many as a second has.")] = None,
    days: Annotated[int | None, typer.Option(help="How long it is valid; for ever.", min=1, max=36_500)] = None,
) -> None:
    """Make a key, add its hash to FILE and print it: this once, then nobody can."""
    from ox.errors import ArgumentError
    from ox.serve.access.key import Key, digest_of, new_secret
    from ox.serve.access.keyfile import read, write

    keys = read(file) if file.exists() else []
    if any(key.name == name for key in keys):
        hint = f"another name, or: ox keys revoke {name} {file}"
        raise ArgumentError(f"there is already a key '{name}'", where=str(file), hint=hint)
    expires = None if days is None else (datetime.now(UTC) + timedelta(days=days)).replace(microsecond=0)
    patterns = [part for text in models or ["*"] for part in _parts(text)]
    secret = new_secret()
    key = Key(name, digest_of(secret.encode()), tuple(patterns), tuple(_parts(actions)), rate, burst, expires)
    write(file, [*keys, key])
    typer.echo(secret)
    typer.echo(f"added '{name}' to {file}; the key is shown this once", err=True)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


@app.command("list")
def list_keys(file: File, as_json: Annotated[bool, typer.Option("--json", help="One object a line.")] = False) -> None:
    """Whom FILE lets in, and to what; never the keys themselves."""
    from ox.serve.access.keyfile import read

    for key in read(file):
        expires = None if key.expires is None else key.expires.isoformat()
        entry = {"name": key.name, "models": key.models, "actions": key.actions, "rate": key.rate,
                 "burst": key.burst, "expires": expires}  # fmt: skip
        if as_json:
            typer.echo(json.dumps(entry))
            continue
        rate = "" if key.rate is None else f" · {key.rate:g}/s"
        until = "" if expires is None else f" · until {expires}"
        typer.echo(f"{key.name} · {' '.join(key.models)} · {' '.join(key.actions)}{rate}{until}")


@app.command("revoke")
def revoke_key(name: Annotated[str, typer.Argument(help="Whose key.", metavar="NAME")], file: File) -> None:
    """Take a key out of FILE; running servers refuse it within a second."""
    from ox.errors import ArgumentError
    from ox.serve.access.keyfile import read, write

    keys = read(file)
    left = [key for key in keys if key.name != name]
    if len(left) == len(keys):
        known = ", ".join(f"'{key.name}'" for key in keys) or "none"
        raise ArgumentError(f"there is no key '{name}'", where=str(file), expected=known)
    write(file, left)
    typer.echo(f"revoked '{name}'; {len(left)} left")
