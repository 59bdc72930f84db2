"""Upload a module, search, watch, stop, resume, download: what a compiler engineer does on the first day."""

from __future__ import annotations

import dataclasses
import gzip
import json
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from accelsim.device import load_device
from accelsim.load import load
from accelsim.mapping import Mapping, check
from accelsim.readers.mapping import read_mapping
from accelsim.simulator import Simulator
from accelsim.writers.json import read_mapping as mapping_in
from accelsim.xla import Compiler

pytestmark = pytest.mark.browser

FILES = Path("tests/data/hlo")
RESNET = FILES / "06_resnet50_keras_jax_f32.hlo.gz"
MAML = FILES / "14_maml_flax_train_step.hlo.gz"


def upload(page: Page, path: Path) -> None:
    page.set_input_files("[data-testid=upload-input]", str(path))
    page.wait_for_selector("[data-testid=graph-canvas][data-nodes]")
    page.wait_for_selector("[data-testid=start-run]:not([disabled])")


def number(page: Page, test_id: str, attribute: str) -> int:
    return int(page.get_attribute(f"[data-testid={test_id}]", attribute) or 0)


def more_than(page: Page, test_id: str, attribute: str, least: int) -> int:
    """Wait until the page shows more than `least` of something."""
    for _ in range(600):
        found = number(page, test_id, attribute)
        if found > least:
            return found
        page.wait_for_timeout(100)
    raise AssertionError(f"{test_id} {attribute} stayed at {number(page, test_id, attribute)}")


def test_a_module_is_uploaded_searched_stopped_resumed_and_downloaded(page: Page, tmp_path: Path) -> None:
    upload(page, RESNET)
    page.fill("#capacity", "4 MiB")
    page.fill("#seconds", "")
    page.fill("#evaluations", "60000")
    page.click("[data-testid=start-run]")

    points = more_than(page, "chart", "data-points", 1)
    more_than(page, "memory-map", "data-rectangles", 10)
    first_best = more_than(page, "best-value", "data-picoseconds", 0)
    more_than(page, "chart", "data-points", points)

    page.click("[data-testid=stop-run]")
    page.wait_for_selector("[data-testid=run-state][data-state=stopped]")
    stopped_best = number(page, "best-value", "data-picoseconds")
    assert stopped_best <= first_best

    page.click("[data-testid=resume-run]")
    page.wait_for_selector("[data-testid=run-state][data-state=running]")
    page.wait_for_selector("[data-testid=run-state][data-state=finished]", timeout=180_000)
    best = number(page, "best-value", "data-picoseconds")
    assert best <= stopped_best

    files = {}
    for name in ("mapping.json", "module.hlo", "mapping.csv", "memory-map.svg", "archive"):
        with page.expect_download() as download:
            page.click(f"[data-testid='download-{name}']")
        files[name] = tmp_path / name
        download.value.save_as(files[name])
    document = json.loads(files["mapping.json"].read_text())
    assert document["recipe"]["budget"]["evaluations"] == 60000
    with Compiler(children=1) as compiler:
        original = load(RESNET.read_bytes(), compiler=compiler).program
        again = load(files["module.hlo"].read_bytes(), compiler=compiler)
    assert again.program.step_name == original.step_name
    in_module = read_mapping(again.source.proto, program=again.program)
    in_document = mapping_in(document, program=original)
    for column in dataclasses.fields(Mapping):
        assert np.array_equal(getattr(in_module, column.name), getattr(in_document, column.name)), column.name
    device = load_device(document["device"]["name"], capacity_bytes=4 << 20)
    check(original, device, in_document)
    assert Simulator(original, device).latency(in_document) == document["latency_ps"] == best
    assert len(files["mapping.csv"].read_text().splitlines()) == in_document.residencies + 1
    assert ElementTree.parse(files["memory-map.svg"]).getroot().tag.endswith("svg")
    with zipfile.ZipFile(files["archive"]) as archive:
        assert archive.testzip() is None and {"mapping.json", "module.hlo"} <= {
            Path(name).name for name in archive.namelist()
        }


def test_a_reload_shows_the_run_as_it_was(page: Page) -> None:
    upload(page, MAML)
    page.fill("#capacity", "16 KiB")
    page.fill("#seconds", "")
    page.fill("#evaluations", "300")
    page.click("[data-testid=start-run]")
    page.wait_for_selector("[data-testid=run-state][data-state=finished]")
    before = [number(page, "best-value", "data-picoseconds"), number(page, "chart", "data-points")]
    page.reload()
    page.wait_for_selector("[data-testid=run-state][data-state=finished]")
    more_than(page, "chart", "data-points", before[1] - 1)
    assert [number(page, "best-value", "data-picoseconds"), number(page, "chart", "data-points")] == before


def test_where_everything_fits_the_page_says_so_and_offers_a_smaller_memory(page: Page) -> None:
    upload(page, MAML)
    page.fill("#capacity", "64 MiB")
    preview = page.get_by_test_id("preview")
    expect(preview).to_contain_text("nothing to search")
    preview.get_by_role("button").first.click()
    expect(preview).not_to_contain_text("nothing to search")


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("empty.hlo", b"", "empty"),
        ("broken.hlo", b"HloModule m\n\nENTRY e {\n  ROOT a = f32[2] frobnicate()\n}\n", "frobnicate"),
        ("noise.bin", bytes(range(256)) * 8, ""),
        ("cut.hlo.gz", RESNET.read_bytes()[:4000], "gzip"),
        ("<img src=x onerror=alert(1)>.hlo", b"HloModule <b>bold</b>", ""),
    ],
)
def test_a_bad_file_is_explained_and_leaves_nothing_behind(page: Page, name: str, data: bytes, words: str) -> None:
    page.wait_for_selector("[data-testid=graph-row]")
    before = page.get_by_test_id("graph-row").count()
    page.set_input_files("[data-testid=upload-input]", files=[{"name": name, "mimeType": "text/plain", "buffer": data}])
    expect(page.get_by_test_id("error-box").first).to_contain_text(words)
    page.reload()
    page.wait_for_selector("[data-testid=graph-row]")
    assert page.get_by_test_id("graph-row").count() == before


def test_a_search_by_opcode_lists_the_instructions(page: Page) -> None:
    upload(page, RESNET)
    page.keyboard.press("/")
    page.get_by_test_id("search-input").fill("convolution")
    text = gzip.decompress(RESNET.read_bytes()).decode()
    assert more_than(page, "search-hits", "data-count", 52) >= text.count(" convolution(") == 53


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_every_page_opens_in_both_schemes_without_a_complaint(page: Page, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    page.wait_for_selector("[data-testid=graph-row]")
    page.get_by_role("link", name="Runs", exact=True).click()
    page.wait_for_url("**/runs")
    page.get_by_role("link", name="Graphs", exact=True).click()
    page.get_by_test_id("graph-row").first.get_by_role("link").first.click()
    page.wait_for_selector("[data-testid=graph-canvas]")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
