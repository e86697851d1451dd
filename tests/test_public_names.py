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
encgraph.attention.choose: Attend Attention FUNCTIONS NAMES PARTICULAR available missing named register
encgraph.attention.cudnn: ELEMENTS Planned Shape attend missing
encgraph.attention.fa3: ARGUMENTS INSIDE_VLLM VARIABLE attend library missing
encgraph.attention.flash: attend missing
encgraph.attention.loop: attend missing
encgraph.attention.operators: Operator define
encgraph.attention.sdpa: LEAST_ROWS attend keep_dead_rows
encgraph.attention.windowed: Segments attend
encgraph.balance: Assignment RULES RankMs Rule by_weight count exact_ms longest_first patches price_ms round_robin rule tokens
encgraph.bench: run summaries
encgraph.benched: Bench System Timed lines
encgraph.budgets: RANGE REASONABLE_PATCHES REASONABLE_TOKENS auto doubling fitted quantile
encgraph.capturing: ASKED BudgetGraph FREE Home Recording WARMUPS explain new_home run session
encgraph.cards: PREFERRED known price recorded
encgraph.checks.audit: Cached check forward paths
encgraph.checks.bad_inputs: BAD SAME_RATIO SPOILED Spoil check
encgraph.checks.checked: Checked MOST_DETAILS lines not_run of
encgraph.checks.conformance: MEMBERS buffers fallback fill forward methods missing
encgraph.checks.fixture: CheckEncoder check_encoder
encgraph.checks.ownership: borrowing check
encgraph.checks.parity: EAGER_MULTIPLE Execute FLOAT32_TOLERANCE ItemParity Parity compare demand distance
encgraph.checks.poison: POISONS SAME_RATIO SENTINEL check contagion survives
encgraph.checks.running: boundaries capture clips full_budget last_row parity
encgraph.checks.stale: CHANGES Change FACTOR REFUSED edited_weight refused
encgraph.checks.subject: MakeInputs Subject TILE synthetic
encgraph.checks.suite: FILLED NAMES RUNNING Running SIZED STATIC Static run
encgraph.checks.watching: COPIES Call FACTORIES HERE METHODS OPERATORS Offence PLAIN Place TORCH WAITS WAITS_ON_CPU_ONLY Watching watched
encgraph.cli.app: EXPECTED OneLineErrors app main
encgraph.cli.benching: Wanted keep show
encgraph.cli.checking: MASKED NAME_WIDTH show
encgraph.cli.drawing: Against HtmlOnly On PapersOut figures
encgraph.cli.health: Attended Health OPTIONAL look show
encgraph.cli.listing: Listed SHOWN_SKIPPED Summed encoders listed remarks traffic
encgraph.cli.look: doctor encoders traffic
encgraph.cli.machines: DEFAULT_CARD Machine STAND_IN chosen costed costs_of
encgraph.cli.options: AsJson Backend BackendName Card Count EncoderName Engine Export Largest MaxGraphs MemoryLimit Method Out Repeats Seed Source StrategyName StrategyNames encoder_names num_bytes
encgraph.cli.output: PIPE_WIDTH bar console file folder line machine note reading table write
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
encgraph.encoders.building: BIAS_STD empty randomise
encgraph.encoders.clip: FAMILY config_of size_of
encgraph.encoders.compiling: BACKEND compilations compile_blocks
encgraph.encoders.dino: DINOV2 DINOV2_REGISTERS DINOV3 UncachedRotary config2_of config2_registers_of config3_of resolution_of size2_of size3_of uncached
encgraph.encoders.faces: itself with_attention with_children
encgraph.encoders.fixed: Fixed Run Slot image_slot patches_of pooled_of whole
encgraph.encoders.fixed_family: ATTENTIONS FixedFamily counted eager_of mapped saved_name saved_size whole_config
encgraph.encoders.gemma3: FAMILY Gemma3Features config_of size_of
encgraph.encoders.glm4v: Glm4v SidesEmbeddings
encgraph.encoders.idefics3: FullTileEmbeddings IDEFICS3 MAX_TILES ONE_HEAD SMOLVLM TileFeatures UNMASKED full_tiles idefics3_of size_of smolvlm_of
encgraph.encoders.inputs: RAW READERS Reader from_files grid_of synthetic
encgraph.encoders.internvl: FAMILY InternVLFeatures MAX_TILES config_of shuffled size_of
encgraph.encoders.metadata: Metadata Places build copy_into host host_offsets item_table locate padding_grid places to_device
encgraph.encoders.naflex_rows: NaFlexEmbeddings compacted resize_weights
encgraph.encoders.packed: CHOICES check_switches cut saved_rule spec wrong
encgraph.encoders.packed_family: PackedFamily
encgraph.encoders.packed_tower: PackedTower
encgraph.encoders.pixels: Affine LEVELS NORMALISATIONS Normalisation of_processor
encgraph.encoders.pixtral: Pixtral
encgraph.encoders.protocol: Buffers Encoder EncoderOutput EncoderSpec Input Switches
encgraph.encoders.qwen2_5_vl: Qwen25VL
encgraph.encoders.qwen2_vl: Qwen2VL
encgraph.encoders.qwen_vl: LONGEST_SIDE QwenVL
encgraph.encoders.registry: Build FAMILIES Family Load from_pretrained named
encgraph.encoders.rows: copy_ends lengthened require_floats require_sizes weight_of
encgraph.encoders.samples: LAYOUTS sample
encgraph.encoders.saved: Files inside load
encgraph.encoders.segments: POOLINGS Pooling Segmented padded pooled_rows segmented
encgraph.encoders.siglip2_naflex: MAX_PATCHES NaFlex build config_of load
encgraph.encoders.siglip: FAMILY config_of size_of
encgraph.encoders.text: INTEGERS PackedText Positions
encgraph.encoders.text_attention: register
encgraph.encoders.text_families: BERT MODERNBERT TextFamily XLM_ROBERTA after_padding bert_of counted modernbert_of pooling_of saved_pooling xlm_roberta_of
encgraph.encoders.towers: LinearPatchEmbed ReadyPositions ReadyRotary arguments attention_config face ready_arguments with_config with_ready_positions
encgraph.encoders.whisper: FAMILY MAX_WINDOWS STRIDE config_of size_of window
encgraph.encoders.windows: Windows build most
encgraph.encoders.wrap: Call call fixed
encgraph.errors: CaptureError ParityError StaleBufferError require
encgraph.evidence: FIT_REQUESTS LARGEST bench curve first_tokens kernels
encgraph.exact: ExactSet open_set
encgraph.export: FAMILIES FIRST_VLLM RENAMED_VLLM VllmFlags vllm
encgraph.exporting: KEPT PICTURES REFRESH WIDTHS Written browser changed_files differences figure_hash missing normalised_pdf normalised_svg other_tools tools write
encgraph.facts: CardPrediction EncoderFacts FallbackFacts GraphState Jitter Latencies Number PackingFacts ParityFacts Report SkippedFile TimedStep TrafficFacts quantile
encgraph.figures.benches: ladder latency_against_tokens memory_by_strategy regimes_compared speedups
encgraph.figures.curves: bytes_by_capacity floors replay_cost spread
encgraph.figures.latency: jitter latency_by_route_and_size latency_quantiles speedup_by_size strategies_compared
encgraph.figures.memory: memory_by_part
encgraph.figures.packings: bins_of_batch budget_ruler
encgraph.figures.ranks: burst_loads speedup_by_ranks
encgraph.figures.replays: fallback_reasons fill
encgraph.figures.template: ENCGRAPH FONT GRID INK PADDING PART_COLOURS ROUTE_COLOURS ROUTE_SYMBOLS STRATEGY_COLOURS TIMES TRAFFIC colour figure label log_tokens sourced uid wrapped
encgraph.figures.tradeoffs: RULE_COLOURS break_even_map latency_by_graphs memory_by_graphs optimality_gap padding_by_graphs
encgraph.figures.traffic: budgets_over_traffic traffic_histogram
encgraph.fitting.bulk: Batches Floats Group Ints Priced WIDEST_ITEMS eager_ms ends find fits joined load_ms runs subsets
encgraph.fitting.judging: Prediction check judge predict
encgraph.fitting.ladders: CANDIDATES Given Ladder solve thinned
encgraph.fitting.posing: Candidate Limits Problem TAIL_STEPS TAIL_WEIGHT pose tail
encgraph.fitting.repacking: CLOSE_OFFER CLOSE_RATIO Choice Fit ROUNDS fit repacked solved
encgraph.fitting.shapes: DENSE Rung Shape Target explained offered
encgraph.fitting.sweep: Outcome Part Rule pack
encgraph.floors: Kernels SAMPLE SIDE exact_runner matmul_tflops prepared sampled
encgraph.graphs: BACKENDS GraphSet Observe State capture unobserved
encgraph.handles: CARDS FIRST_TOKEN card first_tokens gates
encgraph.kernels: Annotations GPU_WORK Kernel from_trace
encgraph.layouts: Keep Layout capacity_of earned layout_of
encgraph.magic: Profile load recording register runners
encgraph.measure: Execute Recorder Timed event interleaved jitter latency synchronize wall_ms
encgraph.memory: Growth Peak Pool growth outside_allocator peak pool_bytes used_bytes
encgraph.meters: DRIVER_FILE PROCESSOR_FILE device environment wall
encgraph.microscope: BUDGET Careless ENCODER LARGE Look Microscope RowState SMALL Safeguards
encgraph.mixed: MixedRunner
encgraph.model_runner.adapters: DUMMY Slot
encgraph.model_runner.answering: Completion Parts Wanted answer
encgraph.model_runner.batches: Laid check_room lay
encgraph.model_runner.cache: EncoderCache content_key weights_mark
encgraph.model_runner.captures: NO_PLAN decoder encoder warning
encgraph.model_runner.decoding: Decoder
encgraph.model_runner.encoding: Encode stock through
encgraph.model_runner.facts: CacheFacts CaptureReport NOTHING Options PartCapture StageTimes
encgraph.model_runner.gates: CONDITIONS Decision Gates Row Said TABLE Why conditions decide row warning
encgraph.model_runner.keyvalues: KeyValueSlabs argument
encgraph.model_runner.models: ATTENTIONS TEXT_SIZES TextSize check named supports
encgraph.model_runner.prompts: Prompt Run compose position_ids runs
encgraph.model_runner.runner: ModelRunner PACKER
encgraph.model_runner.scatter: Embedded check embed
encgraph.model_runner.stepping: DecodeStep Where
encgraph.model_runner.timing: Stopwatch
encgraph.packers.lookup: Lookup NOTHING Size joined load_of nearest_reason size_of to_packing total
encgraph.packers.search: Bins CONTIGUOUS_ITEMS EXACT_ITEMS Found Prices Runs Walk contiguous edges exact one_step
encgraph.packing: PACKINGS Packer ascending cheapest first_fit_decreasing one_each packer predicted_ms smallest why_not
encgraph.papers: BENCH PLANNED Paper SHOWN_GRAPHS catalogue figure
encgraph.parallel.gathering: GATHERS Gather Rows named padded_exchange padded_rows uneven_exchange uneven_rows
encgraph.parallel.identity: SAMPLES differences facts weights_digest
encgraph.parallel.notices: Board CAUSE_CHARACTERS Notice RankError Value
encgraph.parallel.ranks: DEVICES Ranks TIME_LIMIT_S connect
encgraph.parallel.sharded: Lazy OWNERSHIPS ShardedRunner Share
encgraph.peers: Around DummySegment RECOMPILES RUNS ReduceOverhead by_item_count item_count_packer recorded_by_running
encgraph.profilers: Modules SNAPSHOT_ENTRIES annotations_missing kernels memory_snapshot nvtx several torch_profile
encgraph.published.audio: SIZES window_rule
encgraph.published.glm4v: GLM4V_RULE SIZES
encgraph.published.images: BASE CLIP DINOV2 DINOV2_REGISTERS DINOV3 LARGE NAFLEX SIGLIP SIZES SO400M TINY TOY naflex_rule square tower
encgraph.published.pixtral: PIXTRAL_RULE SIZES rule
encgraph.published.qwen_vl: QWEN2_VL_RULE QWEN3_VL_RULE SIZES TINY
encgraph.published.text: BASE LARGE SIZES TINY TOY text_rule
encgraph.published.tiles: GEMMA3 IDEFICS3 INTERNVL INTERN_300M SIZES
encgraph.readings: RegimeLatency mean_speedup ordered preferred regimes requests source summaries
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
encgraph.resizing: RESIZES image_grid video_grid
encgraph.results: CLOCKS Environment Latency Measurement Memory UNITS
encgraph.rows: Own check clone_each one_copy split
encgraph.rules: EncoderSize Grid LAYOUTS MAX_ASPECT Resize Setting TokenRule
encgraph.runner: Borrowed EncoderRunner OWNERSHIPS PackerOf Present Refusal
encgraph.sharding: Burst GatherBytes MAX_RANKS Simulated burst bursts_of gather_bytes lower_bound_ms simulate token_bytes
encgraph.shows: CARDS card gaps html plans rich strategies text
encgraph.sidelines: HOST_ITEMS Routes before_launch_us counted host_numbers jitter_numbers
encgraph.sizes: SIZES capacity item named near_square_grid
encgraph.sources.chats: ChatRequest IMAGE_PART READ_PARTS read
encgraph.sources.images: FORMATS HEADER_CHARS SIDEWAYS Sized files of_file of_url
encgraph.sources.profiles: ClientWindow NAMES Profile ProfilePart converted_grid draw load notes
encgraph.sources.reading: Found Progress Skipped from_chats from_folder from_request_list from_table
encgraph.sources.requestlists: RequestList read
encgraph.sources.tables: TableRow WHOLE read
encgraph.store: FOLDER append experiments gpus load path read root slug to_frame write
encgraph.strategies: COMPILE_REDUCE_OVERHEAD EAGER EAGER_COMPILED EAGER_VARLEN ENCGRAPH ENCGRAPH_PLAIN GROUPS LADDER SGLANG_EXACT STRATEGIES Strategy TRTLLM VLLM VLLM_TUNED chosen named
encgraph.study: Options PARITY_SOURCE Study run
encgraph.summaries: Atom MOST_ATOMS Quantiles TrafficSummary of quantiles
encgraph.systems: Progress Setting TUNED_ITEMS UNPLANNED VLLM_ITEMS Value batches encoder plan predictions ready runner silent
encgraph.tabular: Showing Shown lines mib ms page rich table
encgraph.traces: Event Kept PREFIX TRACKS events perfetto title
encgraph.tradeoffs: BALANCES BreakEven Defer Gap Judged RANKS Requests balances break_even bursts defers fallback_reasons gaps memory memory_by_graphs packings pick rules ways_to_hold
encgraph.traffic: BUILTIN DEFAULT_COUNT READERS SOURCES Traffic read
encgraph.watch: Watch hooked hooks
encgraph.widgets.breakeven: BreakEven CELLS CHOICES COLOURS COMPILED break_even chart fastest
encgraph.widgets.cases: Case FIT_SHARE Judged Requests Side VLLM_LARGEST
encgraph.widgets.duels: Frame JOINED Lanes MOST_ITEMS PackingDuel RULES TITLES frames packing_duel
encgraph.widgets.linked: BATCHES ENGINES Explorer explorer flags
encgraph.widgets.panels: CSS MIB Panel WIDE checkbox close controls dropdown hint note priced slider table
encgraph.widgets.plots: Plot library
encgraph.widgets.ruler: BELOW BudgetRuler COLUMNS HINT MOST_HANDLES budget_ruler drawing
encgraph.widgets.shards: COLUMNS GROUPS MOST_ITEMS MOST_RANKS Requests Sharding drawing sampled sharding
encgraph.widgets.stale: COLOURS STATES StaleState drawing stale_state verdict
encgraph.widgets.strata: MOST_BARS MemoryStrata PARTS added captures compared drawing memory_strata
encgraph.widgets.timelines: MOST_KERNELS Profiled Timeline drawing profiled timeline
encgraph: load_ipython_extension
"""

NEEDS_TORCH = {
    "attention", "bench", "benched", "capturing", "checks", "cli", "encoders", "exact", "floors", "graphs", "measure", "memory", "meters", "microscope", "mixed",
    "model_runner", "parallel", "peers", "profilers", "recording", "rows", "runner", "sidelines", "study", "systems", "watch",
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
