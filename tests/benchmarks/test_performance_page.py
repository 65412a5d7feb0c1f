"""The page, its charts and README's ratios from a small recorded measurement, and the ones of the repository."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import history
import page_text
import performance_page
import pytest
from history import Entry
from measurement import Measurement

RECORDED = Path(__file__).with_name("recorded.json")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which the program writes; it cannot measure."""
    for name, path in {
        "PAGE": "performance.md",
        "CHARTS": "performance",
        "README": "README.md",
        "RESULTS": "performance.json",
        "HISTORY": "history.jsonl",
    }.items():
        monkeypatch.setattr(performance_page, name, tmp_path / path)
    (tmp_path / "README.md").write_text(f"before\n\n{performance_page.BEGIN}\nold\n{performance_page.END}\n\nafter\n")

    def measure(words: list[str], rounds: int) -> Measurement:
        raise AssertionError("nothing may be run")

    monkeypatch.setattr(performance_page.measurement, "measure", measure)
    return tmp_path


def from_recorded(*words: str) -> int:
    return performance_page.main(["--from", str(RECORDED), *words])


def rows(text: str) -> list[list[str]]:
    """The cells of the lines of all tables."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]


def section(text: str, title: str) -> str:
    return text.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_the_same_measurement_gives_the_same_files(files: Path) -> None:
    def contents() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in files.rglob("*") if path.is_file()}

    assert from_recorded() == 0
    once = contents()
    assert from_recorded() == 0
    assert contents() == once
    assert sorted(once) == [
        "README.md", "first-step.svg", "growth-batch.svg", "memory.svg", "performance.md", "ratios.svg",
    ]  # fmt: skip


def test_the_page_is_well_formed(files: Path) -> None:
    from_recorded()
    text = (files / "performance.md").read_text()
    for block in re.findall(r"(?:^\|.*\n)+", text, re.M):
        assert len({len(row) for row in rows(block)}) == 1, block
    images = re.findall(r"!\[.+\]\((.+)\)", text)
    assert len(images) == 4
    assert all((files / image).exists() for image in images)
    assert "\n\n\n" not in text
    assert text.startswith("# Performance\n")
    assert not re.search(r"\{\w+\}|None|nan", text)


def test_the_charts_are_svg_of_what_was_measured(files: Path) -> None:
    from_recorded()
    for path in (files / "performance").iterdir():
        assert ElementTree.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"
        assert "<dc:date>" not in path.read_text()
        assert "fill: #ffffff" in path.read_text(), "a white background, to be read on a dark page"
    text = (files / "performance" / "ratios.svg").read_text()
    for label in ("mlp", "transformer", "gelu", "attention T 4096", "ox / PyTorch eager", "ox / torch.compile"):
        assert f">{label}<" in text
    growth = (files / "performance" / "growth-batch.svg").read_text()
    assert all(f">{label}<" in growth for label in ("1", "8", "64", "256", "1024", "torch.compile", "PyTorch eager"))


def test_medians_spread_and_ratios(measured: Measurement) -> None:
    text = page_text.page(measured, [])
    steps = rows(section(text, "Training steps"))
    assert steps[0][1:] == [
        "ox", "PyTorch", "`torch.compile`", "ox without kernels", "ox / PyTorch", "ox / `torch.compile`",
    ]  # fmt: skip
    assert steps[2] == [
        "mlp", "3.10 (3.00–3.30)", "2.50 (2.40–2.60)", "2.10 (2.00–2.20)", "4.10 (4.00–4.30)", "1.24", "1.48",
    ]  # fmt: skip
    assert steps[3][3:] == ["–", "185 (180–190)", "0.93", "–"]
    assert ["64", "4.20 (4.00–4.40)", "3.80 (3.60–4.00)", "3.20 (3.20–3.20)", "1.11", "1.31"] in rows(
        section(text, "Growth")
    )
    assert ["mlp", "6,100", "700", "16,000", "8.71", "0.38"] in rows(section(text, "First step and compile time"))
    assert ["mlp", "30.5 (30.0–31.0)", "95.0 (94.0–96.0)", "121 (120–122)", "0.32", "0.25"] in rows(
        section(text, "Peak memory")
    )
    assert "training steps: ox is faster than PyTorch in 1 of 2; ratios 0.93 to 1.24, geometric mean 1.07" in section(
        text, "Summary"
    )


def test_compiled_steps_have_tables_of_their_own(measured: Measurement) -> None:
    text = section(page_text.page(measured, []), "Compiled training steps")
    found = [row for row in rows(text) if row[0] == "mlp"]
    assert [[row[1], *row[-2:]] for row in found] == [
        ["1.60 (1.50–1.70)", "0.64", "0.76"],
        ["160 (150–170)", "0.23", "0.08"],
        ["21.0 (20.0–22.0)", "0.22", "0.17"],
    ]
    assert "transformer" not in text, "it was not measured"
    for table in (measured.times, measured.first):
        for by_side in table.values():
            by_side.pop("whole", None)
    assert section(page_text.page(measured, []), "Compiled training steps").strip() == page_text.NOTHING


def test_what_failed_is_named_with_its_reason(measured: Measurement) -> None:
    text = section(page_text.page(measured, []), "Left out")
    assert "- ox without kernels, every workload: MemoryError\n" in text
    assert "- `torch.compile`, step: transformer: InvalidCxxCompiler: No working C++ compiler found" in text
    whole = replace(measured, left_out={}, failed={})
    assert section(page_text.page(whole, []), "Left out").strip() == "Nothing: every side ran every workload."


def test_where_the_time_goes(measured: Measurement) -> None:
    text = section(page_text.page(measured, []), "Where a step's time goes")
    assert rows(text)[2] == ["`Gemm`", "3", "0.90", "30%", "`aten::addmm`", "3", "0.80", "33%"]
    assert rows(text)[3] == ["`step`", "1", "0.50", "17%", "", "", "", ""]
    assert "PyTorch: RuntimeError: no profiler" in text


def test_the_ratios_of_the_readme(files: Path) -> None:
    from_recorded()
    text = (files / "README.md").read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert rows(text)[2:] == [
        ["mlp", "1.24", "1.48"],
        ["transformer", "0.93", "–"],
        ["2 single operators, geometric mean", "0.98", "1.08"],
    ]
    assert "Some CPU, 2 cores, PyTorch 2.13.0." in text


def test_one_process_a_side(measured: Measurement) -> None:
    alone = replace(measured, rounds=1, times={"gelu": {"ox": [1.0], "torch": [2.0]}}, first={})
    text = page_text.page(alone, [])
    assert page_text.TRIAL in text and page_text.TRIAL in page_text.ratios(alone)
    assert page_text.TRIAL not in page_text.page(measured, []) + page_text.ratios(measured)
    assert rows(section(text, "Operators"))[2] == ["gelu", "1.00", "2.00", "–", "–", "0.50", "–"]
    assert section(text, "Peak memory").strip() == page_text.NOTHING


def faster_before(measured: Measurement) -> Entry:
    """An earlier entry in which ox's gelu took half of the time."""
    times = {**measured.times, "gelu": {**measured.times["gelu"], "ox": [0.70, 0.70, 0.71]}}
    return Entry.of(replace(measured, times=times, date="2026-01-01 00:00:00", commit="0000001"))


def test_a_regression_is_on_the_page_and_in_the_exit_code(
    files: Path, measured: Measurement, capsys: pytest.CaptureFixture[str]
) -> None:
    history.append(files / "history.jsonl", faster_before(measured))
    kept = (files / "history.jsonl").read_text()
    assert from_recorded() == 0
    assert from_recorded("--check") == 1
    assert "wrong: gelu: 0.7 before, 1.41 now" in capsys.readouterr().out
    assert (files / "history.jsonl").read_text() == kept, "nothing was measured"
    text = (files / "performance.md").read_text()
    assert ["gelu", "0.70", "1.41", "2.01", "1.00", "**regression**"] in rows(section(text, "Regressions"))
    assert "Compared with commit 0000001" in text
    assert rows(section(text, "History"))[2] == [
        "2026-01-01 00:00:00",
        "0000001",
        "Some CPU, 2 cores",
        "2.13.0",
        "1.07",
        "0.69",
    ]


def test_no_regression_and_no_failure(files: Path, measured: Measurement, tmp_path: Path) -> None:
    source = tmp_path / "whole.json"
    source.write_text(replace(measured, failed={}).to_json())
    assert performance_page.main(["--from", str(source), "--check"]) == 0
    history.append(files / "history.jsonl", Entry.of(replace(measured, date="2026-01-01 00:00:00")))
    assert performance_page.main(["--from", str(source), "--check"]) == 0
    assert "nothing is worse" in (files / "performance.md").read_text()
    assert from_recorded("--check") == 1, "a side failed"


@pytest.mark.parametrize(("rounds", "kept"), [("2", 1), ("1", 0)])
def test_what_is_kept(
    rounds: str, kept: int, files: Path, measured: Measurement, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything, with a spread, is added to the history; each measurement can be turned into the page again."""
    asked = []

    def measure(words: list[str], rounds: int) -> Measurement:
        asked.append((words, rounds))
        return measured

    monkeypatch.setattr(performance_page.measurement, "measure", measure)
    monkeypatch.setenv("ROUNDS", rounds)
    assert performance_page.main([]) == 0
    assert asked == [([], int(rounds))]
    assert len(history.read(files / "history.jsonl")) == kept
    assert Measurement.from_json((files / "performance.json").read_text()) == measured


def test_a_part_is_printed_and_replaces_nothing(
    files: Path, measured: Measurement, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.name: path.read_bytes() for path in files.rglob("*") if path.is_file()}
    monkeypatch.setattr(performance_page.measurement, "measure", lambda words, rounds: measured)
    assert performance_page.main(["gelu"]) == 0
    assert "## Training steps" in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in files.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nosuch"], "no workload has 'nosuch' in its name; there are: step: mlp"),
        (["--from", "nosuch.json"], "nosuch.json holds no measurement: FileNotFoundError"),
        (["--from", "EMPTY"], "holds no measurement: KeyError"),
    ],
)
def test_arguments_that_mean_nothing(
    words: list[str], said: str, files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.json").write_text("{}")
    with pytest.raises(SystemExit) as ended:
        performance_page.main([str(tmp_path / "empty.json") if word == "EMPTY" else word for word in words])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
    assert not (files / "performance.md").exists()


def test_the_page_and_the_readme_are_those_of_the_kept_measurement() -> None:
    """Their figures are not written by hand."""
    kept = Measurement.from_json(performance_page.RESULTS.read_text())
    again = "python benchmarks/performance_page.py --from benchmarks/results/performance.json"
    assert performance_page.PAGE.read_text() == page_text.page(kept, history.read(performance_page.HISTORY)), again
    text = performance_page.README.read_text()
    assert f"{performance_page.BEGIN}\n\n{page_text.ratios(kept)}\n\n{performance_page.END}" in text, again
    images = re.findall(r"!\[.+\]\((.+)\)", performance_page.PAGE.read_text())
    assert {path.name for path in performance_page.CHARTS.iterdir()} == {Path(image).name for image in images}
