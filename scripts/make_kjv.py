"""Writes models/ox_models/data/kjv.txt.bz2, kjv_wordpiece.json and kjv_bpe.json: `python scripts/make_kjv.py`.

The text comes from Debian's `bible-kjv` (the program) and `bible-kjv-text` (the text), the vocabularies from the
training chapters of that text, by the `tokenizers` library. The text comes out the same on every run; a vocabulary may
differ in the order of its pieces and in the rarest of them, which the library chooses by chance: keep it with its
models.
"""

from __future__ import annotations

import bz2
import re
import subprocess
from pathlib import Path

from ox_models.kjv_data import MARKS, chapters, split

DATA = Path(__file__).resolve().parents[1] / "models" / "ox_models" / "data"
WORDS = 3000  # pieces in the vocabulary of whole words and their parts
BYTES = 4096  # pieces in the vocabulary of strings of bytes

# Whole books, about as much of each kind; their names as `bible` writes them, and in full.
KINDS = {
    "law": {"Ge": "Genesis", "Exo": "Exodus"},
    "history": {"1Sm": "1 Samuel", "2Sm": "2 Samuel", "1Ki": "1 Kings"},
    "wisdom": {"Job": "Job", "Prv": "Proverbs", "Eccl": "Ecclesiastes", "SSol": "Song of Solomon"},
    "prophets": {"Isa": "Isaiah", "Eze": "Ezekiel"},
    "gospels": {"Mat": "Matthew", "Luke": "Luke", "John": "John"},
    "letters": {
        "Rom": "Romans", "1Cor": "1 Corinthians", "2Cor": "2 Corinthians", "Gal": "Galatians", "Eph": "Ephesians",
        "Phi": "Philippians", "Col": "Colossians", "1Th": "1 Thessalonians", "2Th": "2 Thessalonians",
        "1Tim": "1 Timothy", "2Tim": "2 Timothy", "Titus": "Titus", "Phmn": "Philemon", "Heb": "Hebrews",
        "Jas": "James", "1Pet": "1 Peter", "2Pet": "2 Peter", "1Jn": "1 John", "2Jn": "2 John", "3Jn": "3 John",
        "Jude": "Jude",
    },
}  # fmt: skip


def verses() -> dict[str, list[tuple[int, str]]]:
    """Chapter and text of each verse, by book."""
    done = subprocess.run(["bible", "-f"], input="gen1:1-rev22:21\n", capture_output=True, text=True, check=True)
    books: dict[str, list[tuple[int, str]]] = {}
    for line in done.stdout.splitlines():
        found = re.fullmatch(r"([1-3]?[A-Z][A-Za-z]*)(\d+):\d+ (.+)", line)
        if found:
            books.setdefault(found[1], []).append((int(found[2]), found[3]))
    return books


def write_text() -> None:
    books, lines = verses(), []
    for kind, names in KINDS.items():
        for short, name in names.items():
            at = 0
            for chapter, verse in books[short]:
                if chapter != at:
                    lines.append(f"# {kind}, {name} {chapter}")
                    at = chapter
                lines.append(verse)
    target = DATA / "kjv.txt.bz2"
    target.write_bytes(bz2.compress(("\n".join(lines) + "\n").encode("ascii")))
    print(f"{target}: {target.stat().st_size} bytes, {len(lines)} lines")


def training_verses() -> list[str]:
    return [verse for chapter in split(chapters())[0] for verse in chapter.verses]


def write_word_pieces() -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from tokenizers.processors import TemplateProcessing
    from tokenizers.trainers import WordPieceTrainer

    tokenizer = Tokenizer(WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = BertNormalizer(), BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = WordPieceTrainer(vocab_size=WORDS, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(training_verses(), trainer)
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(name, special.index(name)) for name in ("[CLS]", "[SEP]")]
    )
    target = DATA / "kjv_wordpiece.json"
    tokenizer.save(str(target), pretty=False)
    print(f"{target}: {target.stat().st_size} bytes, {tokenizer.get_vocab_size()} pieces")


def write_byte_pairs() -> None:
    """GPT-2's kind of vocabulary: every text can be written in it, as every byte is a piece."""
    from tokenizers import Tokenizer, decoders
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.trainers import BpeTrainer

    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=BYTES, special_tokens=MARKS, initial_alphabet=ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(training_verses(), trainer)
    target = DATA / "kjv_bpe.json"
    tokenizer.save(str(target), pretty=False)
    print(f"{target}: {target.stat().st_size} bytes, {tokenizer.get_vocab_size()} pieces")


if __name__ == "__main__":
    write_text()
    write_word_pieces()
    write_byte_pairs()
