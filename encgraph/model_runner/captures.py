"""Capture the encoder's and the decoder's graphs, each alone.

What stops a capture is told in the report; a plan that does not suit the encoder is raised.
"""

import time
from collections.abc import Sequence

from encgraph.model_runner import gates
from encgraph.model_runner.decoding import Decoder
from encgraph.model_runner.facts import CaptureReport, PartCapture
from encgraph.model_runner.gates import Decision, Said
from encgraph.records import Plan
from encgraph.runner import EncoderRunner

NO_PLAN = "the plan has no graphs"


def encoder(encoders: EncoderRunner | None, plan: Plan, decision: Decision) -> PartCapture:
    """Capture a plan, if the gates let it; what fails to be captured runs eager.

    Args:
        encoders: The runner; None where the tower is not supported.
        plan: Of its graphs.
        decision: Of the gates.
    """
    if decision.encoder_off is not None or encoders is None:
        return PartCapture(skipped=decision.encoder_off)
    encoders.plan = plan
    if not plan.graphs:
        return PartCapture(skipped=NO_PLAN)
    start = time.perf_counter()
    try:
        memory = encoders.capture()
    except RuntimeError as error:
        encoders.clear()
        return PartCapture(failures=(str(error),), seconds=time.perf_counter() - start)
    made = encoders.graphs
    assert made is not None
    return PartCapture(
        graphs=len(made.captured_plan.graphs),
        seconds=time.perf_counter() - start,
        memory=memory,
        failures=tuple(g.failure for g in made.graphs if g.failure),
    )


def decoder(
    decoding: Decoder | None, batch_sizes: Sequence[int], decision: Decision
) -> PartCapture:
    """Capture decode steps, if the gates let them; batch sizes that fail run eager or larger.

    Args:
        decoding: The decoder; None in encoder-only mode.
        batch_sizes: Rows of each graph.
        decision: Of the gates.
    """
    if decision.decoder_off is not None or decoding is None:
        return PartCapture(skipped=decision.decoder_off)
    start = time.perf_counter()
    try:
        return decoding.capture(batch_sizes)
    except RuntimeError as error:
        decoding.clear()
        return PartCapture(failures=(str(error),), seconds=time.perf_counter() - start)


def warning(decision: Decision, report: CaptureReport) -> str | None:
    """One sentence about what was skipped or failed, with why; None where all asked for is there."""
    has_encoder, has_decoder = report.encoder.graphs > 0, report.decoder.graphs > 0
    given = decision.gates
    said = Said.NOTHING
    if not has_encoder and not has_decoder:
        said = Said.NO_GRAPHS
    elif not has_encoder and given.encoder_graphs:
        said = Said.NO_ENCODER_GRAPHS
    elif not has_decoder and given.decoder_graphs and not given.encoder_only:
        said = Said.NO_DECODER_GRAPHS
    return gates.warning(given, said, encoder=_why(report.encoder), decoder=_why(report.decoder))


def _why(part: PartCapture) -> str | None:
    failed = next(iter(part.failures), None)
    return part.skipped or (failed and f"its capture failed ({failed})")
