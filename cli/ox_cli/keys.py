"""`ox keys`: the API keys of `ox serve --keys FILE`. A running server reloads the file when it changes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Create, list and revoke API keys for `ox serve`.")

File = Annotated[Path, typer.Argument(help="The key file (TOML).", metavar="FILE")]


@app.command("new")
def new_key(
    file: File,
    name: Annotated[str, typer.Option(help="Name of the key's owner; logs show it.")],
    models: Annotated[
        list[str] | None,
        typer.Option(help="Allowed models: names or patterns such as mo*, separated by commas.", show_default="all"),
    ] = None,
    actions: Annotated[
        str, typer.Option(help="Allowed actions, separated by commas: infer, read, manage, metrics.")
    ] = "infer,read",
    rate: Annotated[float | None, typer.Option(help="Requests per second.", show_default="the server's --rate")] = None,
    burst: Annotated[
        float | None, typer.Option(help="Requests allowed in one burst.", show_default="the requests of one second")
    ] = None,
    tokens_per_minute: Annotated[
        float | None, typer.Option(help="Tokens of prompts and texts in a minute.", show_default="no limit")
    ] = None,
    days: Annotated[
        int | None, typer.Option(help="Days until the key expires.", show_default="never", min=1, max=36_500)
    ] = None,
) -> None:
    """Create a key, print it once and store its hash in FILE. The key cannot be shown again."""
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
    allowed = tuple(patterns), tuple(_parts(actions))
    key = Key(name, digest_of(secret.encode()), *allowed, rate, burst, expires, tokens_per_minute)
    write(file, [*keys, key])
    typer.echo(secret)
    typer.echo(f"added '{name}' to {file}; the key is not shown again", err=True)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


@app.command("list")
def list_keys(
    file: File, as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False
) -> None:
    """List the keys of FILE: name, models, actions, rate and expiry. The keys themselves are not stored."""
    from ox.serve.access.keyfile import read

    for key in read(file):
        expires = None if key.expires is None else key.expires.isoformat()
        entry = {"name": key.name, "models": key.models, "actions": key.actions, "rate": key.rate,
                 "burst": key.burst, "tokens_per_minute": key.tokens_per_minute, "expires": expires}  # fmt: skip
        if as_json:
            typer.echo(json.dumps(entry))
            continue
        rate = "" if key.rate is None else f" · {key.rate:g}/s"
        rate += "" if key.tokens_per_minute is None else f" · {key.tokens_per_minute:g} tokens/min"
        until = "" if expires is None else f" · until {expires}"
        typer.echo(f"{key.name} · {' '.join(key.models)} · {' '.join(key.actions)}{rate}{until}")


@app.command("revoke")
def revoke_key(name: Annotated[str, typer.Argument(help="Name of the key.", metavar="NAME")], file: File) -> None:
    """Remove a key from FILE. Running servers refuse it within a second."""
    from ox.errors import ArgumentError
    from ox.serve.access.keyfile import read, write

    keys = read(file)
    left = [key for key in keys if key.name != name]
    if len(left) == len(keys):
        known = ", ".join(f"'{key.name}'" for key in keys) or "none"
        raise ArgumentError(f"there is no key '{name}'", where=str(file), expected=known)
    write(file, left)
    typer.echo(f"revoked '{name}'; {len(left)} left")
