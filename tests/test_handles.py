"""What lives on a device shows itself, and what a model runner may do, made and took."""

import ast
from pathlib import Path

import helpers_model_runner
from helpers import batch, plan, tiny

from encgraph import balance, costs, evidence, exact, handles, shows, sizes, store
from encgraph.layouts import Keep
from encgraph.mixed import MixedRunner
from encgraph.model_runner import gates
from encgraph.model_runner.facts import CaptureReport, PartCapture
from encgraph.parallel import ranks
from encgraph.parallel.sharded import ShardedRunner
from encgraph.records import Modality, Plan
from encgraph.results import Latency, Measurement
from encgraph.runner import EncoderRunner

ROOT = Path(__file__).parents[1]


def managers() -> set[tuple[str, str]]:
    """Public classes that are context managers, or derive from one, by module and name."""
    classes = {
        (".".join(path.relative_to(ROOT).with_suffix("").parts), node.name): node
        for path in sorted((ROOT / "encgraph").rglob("*.py"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    }
    found: dict[tuple[str, str], str] = {}
    for _ in classes:
        for key, node in classes.items():
            own = {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
            bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
            if "__enter__" in own or bases & set(found.values()):
                found[key] = node.name
    return set(found)


def test_every_handle_has_a_card() -> None:
    assert len(managers()) >= 7
    assert managers() - set(handles.CARDS_BY_NAME) == set()


def test_an_exact_set_shows_the_layouts_it_holds_and_how_it_comes_to_them() -> None:
    encoder = tiny()
    with exact.open_set(encoder, Keep(max_graphs=3), backend="reference") as made:
        assert shows.card(made).title.endswith("empty, 0 of at most 3 layouts held")
        items = [encoder.item_spec(value) for value in batch([(8, 8)], encoder)]
        made.pack(items)
        made.pack(items)
        shown = shows.card(made)
        assert shown.title.endswith("captured, 1 of at most 3 layouts held")
        assert [row[:3] for row in shown.rows] == [("16", "1", "captured")]
        assert shown.note.endswith("captures at hit 2; 1 layouts remembered, 0 evicted, 0 failed")
        assert str(made) == shows.text(made)


def test_a_runner_of_layouts_shows_its_exact_set() -> None:
    def layouts(encoder):  # type: ignore[no-untyped-def]
        return exact.open_set(encoder, Keep(min_hits=1), backend="reference")

    empty = Plan(graphs=(), encoder="qwen3-vl-tiny")
    runner = EncoderRunner(encoder=tiny(), plan=empty, backend="reference", layouts=layouts)
    assert "by layout, none yet" in shows.card(runner).note
    with runner:
        runner.capture()
        runner.execute(batch([(8, 8)], runner.encoder))
        assert shows.card(runner).title.endswith("captured, 1 of at most 16 layouts held")


def test_runners_of_runners_show_their_parts() -> None:
    runner = EncoderRunner(encoder=tiny(), plan=plan(16, 64), backend="reference")
    mixed = MixedRunner({Modality.IMAGE: runner, Modality.VIDEO: runner})
    assert shows.card(mixed).title == "Mixed runner of 1 encoders"
    assert shows.card(mixed).rows[0][3] == "no graphs: every batch runs eager"
    model = costs.modelled(sizes.named("qwen3-vl-tiny"))
    rule = balance.rule("longest_first", model)
    with ShardedRunner(runner=runner, ranks=ranks.connect("cpu"), assign=rule) as sharded:
        sharded.capture()
        assert shows.card(mixed).rows[1] == (
            "video",
            "qwen3-vl-tiny",
            "reference",
            "captured, 2 of 2 graphs usable",
        )
        shown = shows.card(sharded)
        assert shown.title == "Sharded runner, rank 0 of 1, padded gather: no batch yet"
        assert len(shown.rows) == 2
        assert shows.card(sharded.ranks).title == "Ranks: this is rank 0 of 1 on cpu"


def test_a_model_runner_shows_what_each_part_holds() -> None:
    with helpers_model_runner.runner(helpers_model_runner.tiny_model()) as runner:
        runner.capture()
        rows = dict(shows.card(runner).rows)
        assert rows["encoder"] == "captured, 2 of 2 graphs usable"
        assert rows["decoder"] == "graphs of 1, 2, 4 prompts"
        assert rows["cache"].startswith("0 outputs, 0 MiB of ")


def test_the_gates_show_every_row_of_their_table() -> None:
    shown = handles.gates(gates.TABLE, gates.CONDITIONS)
    assert len(shown.rows) == len(gates.TABLE)
    assert shown.columns[:2] == ("eager only", "encoder only")
    default = shown.rows[gates.TABLE.index(gates.row(gates.Gates()))]
    assert default == ("no", "no", "yes", "yes", "yes", "yes", "captured", "captured", "nothing")


def test_a_capture_shows_what_failed_and_what_was_skipped() -> None:
    failed = PartCapture(graphs=1, failures=("budget 64: out of memory",))
    report = CaptureReport(
        encoder=failed, decoder=PartCapture(skipped="it is off"), key_value_bytes=2**20
    )
    assert shows.card(report).rows == (
        ("encoder", "1", "0 MiB", "budget 64: out of memory"),
        ("decoder", "0", "0 MiB", "it is off"),
    )


def line(strategy: str, **fields: object) -> Measurement:
    where = store.load("h200", "bench-servegen")[0].environment
    numbers = {
        "concurrency_count": 4,
        "encode_ms": 10.0,
        "prefill_ms": 30.0,
        "encode_share_ratio": 0.25,
    }
    return Measurement(
        experiment="time_to_first_token-qwen3-vl-2b",
        encoder="qwen3-vl-2b",
        environment=where,
        strategy=strategy,
        traffic="builtin:servegen",
        numbers=numbers,
        **fields,  # type: ignore[arg-type]
    )


def test_first_tokens_are_a_row_a_summary_with_card_and_samples() -> None:
    whole = line("eager", latency=Latency.of([40.0, 42.0, 44.0], clock="wall"))
    shown = handles.first_tokens([line("eager", request=0), whole, line("jitter")])
    assert shown.rows == (("eager", "4", "42.0 ms", "44.0 ms", "10.0 ms", "30.0 ms", "0.25"),)
    assert shown.columns[2:6] == (
        *("first token, p50", "first token, slowest"),
        *("encode, mean", "prefill, mean"),
    )
    assert shown.note.startswith("qwen3-vl-2b on NVIDIA H200")
    assert shown.note.endswith("; 3 batches of builtin:servegen")


def test_first_tokens_of_a_hundred_batches_have_a_p99() -> None:
    many = line("eager", latency=Latency.of(range(1, 101), clock="wall"))
    shown = handles.first_tokens([many])
    assert (shown.columns[3], shown.rows[0][3]) == ("first token, p99", "99.0 ms")
    few = line("eager", latency=Latency.of(range(1, 51), clock="wall"))
    shown = handles.first_tokens([many, few])
    assert shown.columns[3] == "first token, slowest"
    assert [row[3] for row in shown.rows] == ["100 ms", "50.0 ms"]


def test_first_tokens_that_are_not_on_record_say_so() -> None:
    assert evidence.first_tokens("no-such-model") == ()
    shown = handles.first_tokens(())
    assert shown.title == "Time to first token is not on record yet"
    assert "--first-token" in shown.note
