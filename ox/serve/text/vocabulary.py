"""Whether a tokenizer is that of a model: both have the same number of tokens, or nearly."""

from __future__ import annotations

from pathlib import Path

from ox.errors import LoadError
from ox.graph.reader.model_file import parse
from ox.serve.operator_kinds import KINDS
from ox.serve.text.text_tensors import IDS
from ox.serve.text.text_tokenizer import TextTokenizer

SPARE = 1024  # rows of a table that no token has: its size is often rounded up
PASSED_ON = KINDS["identity"] | KINDS["conversion"] | KINDS["reshape"]  # give the tokens that they take, in order


def check_vocabulary(path: Path, tokenizer: TextTokenizer) -> None:
    """Compare a model's table of tokens with the tokenizer beside it. A file whose table is not found is let pass.

    Raises:
        LoadError: the tokenizer has tokens that the model does not have, or the model has many more.
    """
    rows = table_rows(path)
    if rows is None:
        return
    largest, count = tokenizer.largest_id, tokenizer.vocab_size
    if largest >= rows or rows > largest + 1 + max(SPARE, count // 10):
        raise LoadError(
            "the tokenizer is that of another model",
            where=str(path),
            expected=f"{rows} tokens, as the model has",
            got=f"{largest + 1} in the tokenizer",
            hint="the tokenizer.json of this model's folder",
        )


def table_rows(path: Path) -> int | None:
    """The rows of the table that a model's tokens are looked up in; None if there is no such table in the graph."""
    graph = parse(path).graph
    sizes = {each.name: each.dims[0] for each in graph.initializer if len(each.dims) == 2}
    names = {IDS}
    for node in graph.node:
        if node.op_type in PASSED_ON and node.input and node.input[0] in names:
            names.update(node.output)
        elif node.op_type == "Gather" and node.input[1] in names and node.input[0] in sizes:
            return int(sizes[node.input[0]])
    return None
