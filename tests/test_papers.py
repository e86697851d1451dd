import json
import re
import shutil
from pathlib import Path

import plotly.graph_objects as go
import pytest
from typer.testing import CliRunner

from encgraph import datadir, exporting, papers, sizes, store, traffic
from encgraph.cli.app import app

PAPERS = papers.catalogue("h200")


def few() -> tuple[papers.Paper, ...]:
    return PAPERS[:2]


def test_a_catalogue_draws_every_experiment_on_record() -> None:
    names = {paper.name.split(".")[0] for paper in PAPERS}
    assert set(store.experiments("h200")) | {"plans"} == names


def test_a_p99_is_drawn_only_of_enough_requests_to_have_one() -> None:
    names = {paper.name for paper in PAPERS}
    assert "bench-servegen.ladder-p99" in names
    assert "bench-mix.ladder-p99" not in names


def test_a_caption_counts_what_its_record_holds() -> None:
    captions = {paper.name: paper.caption for paper in PAPERS}
    assert "40 points, means over 6 to 30 batches" in captions["data_parallel.gain"]
    assert "19 encoders on NVIDIA H200" in captions["encoders.speedup"]


def test_every_figure_draws_and_its_traces_have_uids_of_their_own() -> None:
    for paper in PAPERS:
        drawn = paper.draw()
        uids = [trace.uid for trace in drawn.data]
        assert all(re.fullmatch(r"[A-Za-z0-9_-]+", uid or "") for uid in uids), paper.name
        assert len(set(uids)) == len(uids), paper.name
        assert drawn.layout.xaxis.title.text, paper.name


def test_a_caption_says_the_card_and_the_samples_and_the_data_exist() -> None:
    for paper in PAPERS:
        assert "NVIDIA H200" in paper.caption, paper.name
        assert re.search(r"\d+ (requests|points|replays|captures)", paper.caption), paper.name
        assert all((datadir.root() / name).is_file() for name in paper.data)


def test_a_caption_of_plans_counts_the_requests_on_both_sides() -> None:
    plans = [paper.caption for paper in PAPERS if paper.name.startswith("plans.")]
    counts = [
        re.search(r"([\d,]+) held-out requests .*?, ([\d,]+) others to fit on", c) for c in plans
    ]
    both = {tuple(int(n.replace(",", "")) for n in c.groups()) for c in counts if c}
    fit_on, held_out = traffic.read(papers.PLANNED, sizes.named("qwen3-vl-8b")).split(0.5)
    assert both == {(len(held_out.requests), len(fit_on.requests))}
    assert all(counts)


def test_a_second_run_writes_the_same_manifest(tmp_path: Path) -> None:
    first = exporting.write(few(), tmp_path / "a", pictures=())
    again = exporting.write(few(), tmp_path / "b", pictures=())
    assert first.manifest.read_bytes() == again.manifest.read_bytes()
    assert {p.name for p in first.files} == {f"{paper.name}.html" for paper in few()}
    assert exporting.differences(first.manifest, few()) == []


def test_a_manifest_tells_changed_data_changed_figures_and_lost_ones(tmp_path: Path) -> None:
    manifest = exporting.write(few(), tmp_path, pictures=()).manifest
    content = json.loads(manifest.read_text())
    first, second = (paper.name for paper in few())
    content["figures"][first]["figure"] = "0"
    content["figures"][second]["data"] = {}
    content["figures"]["gone"] = content["figures"][first]
    manifest.write_text(json.dumps(content))
    assert exporting.differences(manifest, few()) == [
        "gone is in the manifest and no longer made",
        f"{first}: the same data draw another figure",
        f"{second}: its data changed",
    ]
    assert f"{PAPERS[2].name} is not in the manifest" in exporting.differences(manifest, PAPERS[:3])


def test_a_figure_hash_sees_data_and_not_ids_or_last_bits() -> None:
    one = go.Figure(go.Scatter(uid="a", x=[1.0], y=[0.1 + 0.2]))
    assert exporting.figure_hash(one) == exporting.figure_hash(
        go.Figure(go.Scatter(uid="b", x=[1.0], y=[0.3]))
    )
    other = go.Figure(go.Scatter(uid="a", x=[1.0], y=[0.3001]))
    assert exporting.figure_hash(one) != exporting.figure_hash(other)


def test_an_svg_loses_its_random_ids_and_keeps_its_colours() -> None:
    svg = '<defs id="defs-ab12cd"/><g id="clipab12cd"/><g class="trace scatter trace0f0f0f" fill="#ab12cd"/>'
    assert exporting.normalised_svg(svg) == (
        '<defs id="defs-figure"/><g id="clipfigure"/>'
        '<g class="trace scatter trace000000" fill="#ab12cd"/>'
    )


def test_an_svg_loses_the_random_ids_of_its_colour_bars() -> None:
    svg = (
        '<linearGradient id="gfigure-cb02d21c"/><g class="cb02d21c colorbar" fill="#02d21c">'
        '<g class="ycb02d21ctick"/></g><g class="cb9a8b7c colorbar"/>'
    )
    assert exporting.normalised_svg(svg) == (
        '<linearGradient id="gfigure-cb000000"/><g class="cb000000 colorbar" fill="#02d21c">'
        '<g class="ycb000000tick"/></g><g class="cb000001 colorbar"/>'
    )


def test_an_svg_loses_the_random_ids_of_its_patterns() -> None:
    svg = '<pattern id="pfigure-legend-cbaf7c"><path style="fill: url(#pfigure-cbaf7c)" stroke="#cbaf7c"/>'
    assert exporting.normalised_svg(svg) == svg.replace("-cbaf7c", "-000000")


def test_a_pdf_is_of_the_epoch() -> None:
    pdf = b"/CreationDate (D:20261129175203+00'00')\n/ModDate (D:20261129175203+00'00')"
    assert exporting.normalised_pdf(pdf).count(b"19700101000000") == 2


@pytest.mark.skipif(exporting.missing() is not None, reason=str(exporting.missing()))
def test_pictures_have_the_widths_of_a_paper_and_the_same_bytes_again(tmp_path: Path) -> None:
    first = exporting.write(few()[:1], tmp_path / "a")
    again = exporting.write(few()[:1], tmp_path / "b")
    assert first.skipped is None
    assert first.manifest.read_bytes() == again.manifest.read_bytes()
    name = few()[0].name
    for column, width in exporting.WIDTHS.items():
        svg = (tmp_path / "a" / f"{name}.{column}.svg").read_text()
        assert f'width="{width}"' in svg
        pdf = (tmp_path / "a" / f"{name}.{column}.pdf").read_bytes()
        assert pdf.startswith(b"%PDF")
        assert b"/FontFile" in pdf, "fonts are embedded"


def test_an_unknown_card_or_figure_says_which_there_are() -> None:
    with pytest.raises(ValueError, match=r"no measurements of card 'tpu'.*h200"):
        papers.catalogue("tpu")
    with pytest.raises(ValueError, match=r"figure must be one of \["):
        papers.figure("nothing")


def test_the_command_writes_and_checks(tmp_path: Path) -> None:
    run = CliRunner()
    wrote = run.invoke(app, ["figures", "--out", str(tmp_path), "--html-only", "--json"])
    assert wrote.exit_code == 0, wrote.output
    assert json.loads(wrote.stdout)["skipped"] is None
    manifest = tmp_path / "manifest.json"
    checked = run.invoke(app, ["figures", "--check", str(manifest)])
    assert checked.exit_code == 0, checked.output
    shutil.copy(manifest, tmp_path / "old.json")
    (tmp_path / "old.json").write_text(manifest.read_text().replace('"figure": "', '"figure": "0'))
    failed = run.invoke(app, ["figures", "--check", str(tmp_path / "old.json")])
    assert failed.exit_code == 1
    assert "the same data draw another figure" in failed.stderr
