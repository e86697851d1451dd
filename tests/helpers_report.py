"""What tests of the report share: the page as a reader sees it, and a run that replayed nothing, a replay."""

import html
import re
from dataclasses import replace

import report_examples as examples
from plotly.offline import get_plotlyjs

from encgraph.facts import FallbackFacts, PackingFacts, Report, TimedStep
from encgraph.records import Capacity, FallbackReason, Modality, Route, Step
from encgraph.report import page
from encgraph.results import Latency, Measurement

LIBRARY: str = get_plotlyjs()


def words(report: Report) -> str:
    """The page without plotly, scripts, style and tags, as a reader sees it."""
    text = page.render(report).replace(LIBRARY, "")
    text = re.sub(r"<(script|style)\b.*?</\1>", " ", text, flags=re.S)
    text = html.unescape(re.sub(r"<[^>]+>", " ", text))
    return re.sub(r"\s+", " ", text)


def all_eager() -> Report:
    """Graphs exist, yet packing found eager faster for every item."""
    base = examples.card_report(count=20)
    steps = tuple(
        TimedStep(
            step=Step(
                route=Route.FALLBACK,
                modality=Modality.IMAGE,
                items=1,
                real_tokens=timed.step.real_tokens,
                reason=FallbackReason.EAGER_IS_FASTER,
            ),
            ms=timed.ms,
            request=timed.request,
        )
        for timed in base.steps
    )
    plain = [timed.step for timed in steps]
    return replace(
        base,
        steps=steps,
        packing=PackingFacts.of(plain),
        fallbacks=FallbackFacts.by_reason(plain),
        times=tuple(replace(t, ours_ms=t.eager_ms) for t in base.times),
    )


def replayed(body: str, **numbers: float) -> Measurement:
    """One replay of a body, with what its kernels took."""
    return Measurement(
        experiment="inside",
        encoder="qwen3-vl-8b",
        environment=examples.environment(),
        strategy=body,
        capacity=Capacity(
            tokens=64, items=8, patches=256, segments=8, longest_segment=256, frames=8
        ),
        latency=Latency.of([3.0], clock="device"),
        numbers=numbers,
    )
