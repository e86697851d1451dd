"""The public names as a literal list, so that a rename is a diff, and what a plain import costs.

`python tests/test_public_names.py` rewrites the list from the tree.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PUBLIC = """
encgraph.attention.choose: Attend Attention FAST FUNCTIONS NAMES available missing named register
encgraph.attention.cudnn: ELEMENTS Planned Shape attend missing
encgraph.attention.fa3: ARGUMENTS INSIDE_VLLM VARIABLE attend library missing
encgraph.attention.flash: attend missing
encgraph.attention.sdpa: LEAST_ROWS attend keep_dead_rows
encgraph.bench: Bench System run summaries
encgraph.budgets: REASONABLE_TOKENS auto doubling fitted quantile
encgraph.capturing: BudgetGraph Recording WARMUPS run session
encgraph.cards: PREFERRED known price recorded
encgraph.checks: EAGER_MULTIPLE Execute FLOAT32_TOLERANCE ItemParity Parity demand distance parity poison
encgraph.cli.app: EXPECTED OneLineErrors app main
encgraph.cli.benching: Wanted keep show
encgraph.cli.checking: Checked ITEMS show
encgraph.cli.health: Attended Health OPTIONAL look show
encgraph.cli.listing: Listed SHOWN_SKIPPED Summed encoders listed remarks traffic
encgraph.cli.look: doctor encoders traffic
encgraph.cli.machines: DEFAULT_CARD Machine STAND_IN chosen costed costs_of
encgraph.cli.options: AsJson Backend BackendName Card Count EncoderName Engine Export Largest MaxGraphs MemoryLimit Method Out Repeats Seed Source StrategyName StrategyNames num_bytes
encgraph.cli.output: bar console file folder line machine note reading table write
encgraph.cli.plan: plan
encgraph.cli.planning: FIT_SHARE Parts Planned Requests VLLM_LARGEST Wanted defaults make parted planned rule
encgraph.cli.plans: COLUMNS MIB expected show
encgraph.cli.prove: check run
encgraph.cli.recordings: show
encgraph.cli.running: Wanted load_plan predicted show
encgraph.cli.sources: CARD_COUNT CPU_COUNT FIT_COUNT Given decodable read to_compare to_run
encgraph.cli.timing: bench record
encgraph.codec: Record decode dumps encode loads
encgraph.costs: BLOCK_PATCHES Costs Curve H200_BF16_TFLOPS floor_ms flops modelled row_bytes
encgraph.curves: Fitness Kernels Terms check experiment fit recorded
encgraph.datadir: root
encgraph.encoders.inputs: from_files grid_of synthetic
encgraph.encoders.metadata: Metadata build copy_into host host_offsets padding_grid to_device
encgraph.encoders.packed: copy_pixels cut wrong
encgraph.encoders.protocol: Buffers Encoder EncoderOutput EncoderSpec Input
encgraph.encoders.qwen_vl: CHOICES LONGEST_SIDE QwenVL
encgraph.encoders.registry: BIAS_STD PREFIXES Switches from_pretrained named
encgraph.encoders.towers: LinearPatchEmbed ReadyPositions ReadyRotary arguments face ready_arguments with_ready_positions
encgraph.errors: CaptureError ParityError StaleBufferError require
encgraph.export: FIRST_VLLM RENAMED_VLLM VllmFlags vllm
encgraph.facts: CardPrediction EncoderFacts FallbackFacts GraphState Jitter Latencies Number PackingFacts ParityFacts Report SkippedFile TimedStep TrafficFacts quantile
encgraph.figures.latency: jitter latency_by_route_and_size latency_quantiles speedup_by_size strategies_compared
encgraph.figures.memory: memory_by_part
encgraph.figures.replays: fallback_reasons fill
encgraph.figures.template: ENCGRAPH FONT GRID INK PADDING PART_COLOURS ROUTE_COLOURS ROUTE_SYMBOLS STRATEGY_COLOURS TRAFFIC colour figure label log_tokens wrapped
encgraph.figures.traffic: budgets_over_traffic traffic_histogram
encgraph.fitting.bulk: Batches Floats Group Ints Priced WIDEST_ITEMS eager_ms ends find fits joined load_ms runs subsets
encgraph.fitting.judging: Prediction check judge predict
encgraph.fitting.ladders: CANDIDATES Given Ladder solve thinned
encgraph.fitting.posing: Candidate Limits Problem TAIL_STEPS TAIL_WEIGHT pose tail
encgraph.fitting.repacking: CLOSE_OFFER CLOSE_RATIO Choice Fit ROUNDS fit repacked solved
encgraph.fitting.shapes: DENSE Rung Shape Target explained offered
encgraph.fitting.sweep: Outcome Part Rule pack
encgraph.graphs: BACKENDS GraphSet Observe State capture unobserved
encgraph.measure: Execute Recorder Timed event interleaved jitter latency synchronize wall_ms
encgraph.memory: Growth Peak Pool growth outside_allocator peak pool_bytes
encgraph.meters: DRIVER_FILE PROCESSOR_FILE device environment wall
encgraph.packers.lookup: Lookup NOTHING Size joined load_of nearest_reason size_of to_packing total
encgraph.packers.search: Bins CONTIGUOUS_ITEMS EXACT_ITEMS Found Prices Runs Walk contiguous edges exact one_step
encgraph.packing: PACKINGS Packer ascending cheapest first_fit_decreasing one_each packer predicted_ms smallest why_not
encgraph.recording: CAPS Progress Recording SLOW_MS TOKENS record
encgraph.records: Bin Capacity DIMENSIONS Fallback FallbackReason Item Load Modality Packing Plan Route SCHEMA Step
encgraph.regimes: Regime RequestTimes SIZE_EDGES by_size
encgraph.report.advice: FEW_REQUESTS LOW_FILL MANY_FALLBACKS MUCH_JITTER advised recommendations
encgraph.report.drawings: Drawing evidence html latency
encgraph.report.findings: EVEN Verdict alternation fill_by_budget mean_speedup of_fallbacks of_fill of_items of_jitter of_latencies of_memory of_prediction of_routes of_speedup of_traffic parts size_lines verdicts
encgraph.report.page: render write
encgraph.report.sections: change environment fallbacks header latency notices parity plan traffic verdicts
encgraph.report.style: CSS
encgraph.report.text: Html TIMES bare_ms definitions element esc factor join mib ms percent plural prose seconds table
encgraph.results: CLOCKS Environment Latency Measurement Memory UNITS
encgraph.runner: Borrowed EncoderRunner OWNERSHIPS Own PackerOf Present
encgraph.sizes: EncoderSize Grid MAX_ASPECT QWEN3_VL_RULE SIZES TINY TokenRule capacity image_grid item named near_square_grid video_grid
encgraph.sources.chats: ChatRequest IMAGE_PART READ_PARTS read
encgraph.sources.images: FORMATS HEADER_CHARS SIDEWAYS Sized files of_file of_url
encgraph.sources.profiles: ClientWindow NAMES Profile ProfilePart converted_grid draw load notes
encgraph.sources.reading: Found Progress Skipped from_chats from_folder from_request_list from_table
encgraph.sources.requestlists: RequestList read
encgraph.sources.tables: TableRow WHOLE read
encgraph.store: FOLDER append experiments gpus load path read root slug to_frame write
encgraph.strategies: EAGER EAGER_VARLEN ENCGRAPH ENCGRAPH_PLAIN STRATEGIES Strategy VLLM VLLM_TUNED named
encgraph.study: Options PARITY_SOURCE Study run
encgraph.summaries: Atom MOST_ATOMS Quantiles TrafficSummary of quantiles
encgraph.systems: Progress Setting TUNED_ITEMS VLLM_ITEMS Value batches encoder plan predictions runner silent
encgraph.traffic: BUILTIN DEFAULT_COUNT READERS SOURCES Traffic read
encgraph.watch: Watch hooked hooks
"""

NEEDS_TORCH = {
    "attention", "bench", "capturing", "checks", "cli", "encoders", "exact", "graphs", "measure", "memory", "meters",
    "model_runner", "parallel", "profilers", "recording", "runner", "study", "systems", "watch",
}  # fmt: skip
"""All else must plan and draw where torch is not even installed."""


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted((ROOT / "encgraph").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(p for p in parts if p != "__init__")
        if not any(p.startswith("_") for p in parts[1:] if p != "__init__"):
            found[name] = path
    return found


def defined(path: Path) -> Iterator[str]:
    """Names that a module's own top level defines; imports are somebody else's."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (t.id for t in node.targets if isinstance(t, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def listed() -> str:
    lines = []
    for name, path in modules().items():
        names = sorted({n for n in defined(path) if not n.startswith("_")})
        if names:
            lines.append(f"{name}: {' '.join(names)}\n")
    return "\n" + "".join(sorted(lines))


def test_public_names_are_those_listed() -> None:
    assert listed().splitlines() == PUBLIC.splitlines()


def planning() -> list[str]:
    return [name for name in modules() if name.split(".")[1:2] != [] and not _torch(name)]


def _torch(name: str) -> bool:
    return name.split(".")[1] in NEEDS_TORCH


def test_planning_and_drawing_import_neither_torch_nor_transformers() -> None:
    code = (
        f"import importlib, sys; [importlib.import_module(m) for m in {planning()!r}]; "
        "print(*sorted({'torch', 'transformers', 'pandas'} & set(sys.modules)), end='')"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("", "", 0)


@pytest.mark.parametrize("name", ["errors", "records", "sizes", "costs", "store", "export"])
def test_a_planning_module_counts_as_one(name: str) -> None:
    assert f"encgraph.{name}" in planning()


if __name__ == "__main__":
    here = Path(__file__)
    text = re.sub(
        r'(?s)PUBLIC = """.*?"""', f'PUBLIC = """{listed()}"""', here.read_text(), count=1
    )
    here.write_text(text)
