"""What a model runner may do, made and took, as tables."""

from encgraph import evidence, handles, shows, store
from encgraph.model_runner import gates
from encgraph.model_runner.facts import CaptureReport, PartCapture
from encgraph.results import Latency, Measurement


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
    assert shown.note.startswith("qwen3-vl-2b on NVIDIA H200")
    assert shown.note.endswith("; 3 batches of builtin:servegen")


def test_first_tokens_that_are_not_on_record_say_so() -> None:
    assert evidence.first_tokens("no-such-model") == ()
    shown = handles.first_tokens(())
    assert shown.title == "Time to first token is not on record yet"
    assert "time_to_first_token.py" in shown.note
