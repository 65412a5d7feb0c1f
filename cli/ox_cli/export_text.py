"""`ox export FOLDER`: a recipe's model with its tokenizer, as a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ox.export import Report
    from ox.train import Run
    from ox.train.recipe.recipe import Recipe


def export_text(
    path: Path, recipe: Recipe, model: Any, rows: Sequence[Any], run: Run, opset: int | None, optimize: str | None
) -> tuple[Report, list[str]]:
    """Write the folder of a decoder (`ox.export.save_decoder`) or of another model that reads texts
    (`ox.export.save_encoder`).

    Returns:
        what was exported, and lines about the texts and the folder.
    """
    from ox.export import save_decoder, save_encoder
    from ox.generation import Generates
    from ox.temporary_files import folder as temporary_folder
    from ox_cli.export_data import metadata_of
    from ox_cli.file_size import size

    pieces = recipe.function("tokenizer")()
    recipe.check_result("tokenizer", pieces, hasattr(pieces, "save"), "a tokenizers.Tokenizer")
    metadata = metadata_of(recipe, run.manifest())
    with temporary_folder(f".{path.name}.", path.parent) as inside:
        tokenizer = inside / "tokenizer.json"
        pieces.save(str(tokenizer), pretty=False)
        if isinstance(model, Generates):
            decoder = save_decoder(
                model, path, tokenizer=tokenizer, chat_template=recipe.optional("chat_template"),
                generation=recipe.optional("generation"), opset=opset, optimize=optimize or "inference",
                metadata=metadata,
            )  # fmt: skip
            report, proven = decoder.model, str(decoder).splitlines()[-1].strip()
            files = decoder.files
        else:
            encoder = save_encoder(
                model, path, rows, tokenizer=tokenizer, labels=recipe.labels, opset=opset, optimize=optimize,
                golden=False, meaning={**recipe.inputs, **recipe.outputs}, run=run.name, metadata=metadata,
                output_names=list(recipe.outputs) or None,
            )  # fmt: skip
            report, proven = encoder.model, str(encoder).splitlines()[-1].strip()
            files = encoder.files
    return report, [proven, f"{path}  {size(report.size)} · {', '.join(files)}"]
