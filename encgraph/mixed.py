"""Several encoders behind one `execute`: each item goes to the encoder of its modality.

An encoder that takes images and clips needs none of this: one runner packs both, each for itself. Images
and audio are two encoders with graphs of their own; their items are run encoder by encoder, and come
back in the order in which they were given.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from encgraph import incoming
from encgraph.encoders.protocol import EncoderOutput, Input
from encgraph.errors import require
from encgraph.incoming import Refusal
from encgraph.records import Modality
from encgraph.runner import EncoderRunner
from encgraph.tabular import Showing


@dataclass(frozen=True, slots=True, eq=False)
class MixedRunner(Showing):
    """Runners by the modality whose items they take; a context manager that clears them on exit.

    One runner may stand under several modalities; its items then share batches.
    """

    runners: Mapping[Modality, EncoderRunner]

    def __post_init__(self) -> None:
        require(bool(self.runners), "a mixed runner needs at least one runner, got none")
        for modality, runner in self.runners.items():
            takes = sorted(runner.encoder.spec.modalities)
            require(
                modality in takes,
                f"the runner for {modality} must take it, got {runner.encoder.spec.name!r}, which "
                f"takes {takes}",
            )

    def __enter__(self) -> "MixedRunner":
        return self

    def __exit__(self, *exc: object) -> None:
        self.clear()

    def capture(self) -> None:
        """Capture each runner's plan.

        Raises:
            CaptureError: If a runner could not capture any budget; the others stay as they are.
        """
        for runner in self._distinct():
            runner.capture()

    def clear(self) -> int:
        """Drop all graphs; idempotent. Returns the bytes given back."""
        return sum(runner.clear() for runner in self._distinct())

    def execute(self, batch: Sequence[Input]) -> list[EncoderOutput]:
        """Encode a batch of any of the modalities.

        Args:
            batch: N inputs; may be empty.

        Returns:
            N outputs in batch order, owned by the caller; their widths are those of their encoders.

        Raises:
            TypeError: If something in the batch is not an `Input`.
            ValueError: If an input has a modality without a runner or contradicts its own sizes;
                names its place in the batch. Nothing is encoded then.
            StaleBufferError: If an encoder changed since capture.
        """
        refused = [self._refusal(value, index) for index, value in enumerate(batch)]
        for error in refused:
            if error is not None:
                raise error
        return self._encoded(batch, range(len(batch)))

    def execute_each(self, batch: Sequence[Input]) -> list[EncoderOutput | Refusal]:
        """Encode what can be encoded; a bad item gives its error in its place."""
        refused = [self._refusal(value, index) for index, value in enumerate(batch)]
        good = [index for index, error in enumerate(refused) if error is None]
        outputs = iter(self._encoded(batch, good))
        return [next(outputs) if error is None else error for error in refused]

    def _encoded(self, batch: Sequence[Input], indices: Sequence[int]) -> list[EncoderOutput]:
        """Outputs of good items, in the order of their indices."""
        made: dict[int, EncoderOutput] = {}
        for runner in self._distinct():
            members = [i for i in indices if self.runners[batch[i].item.modality] is runner]
            outputs = runner.execute([batch[index] for index in members])
            made |= zip(members, outputs, strict=True)
        return [made[index] for index in indices]

    def _refusal(self, value: Input, index: int) -> Refusal | None:
        if not isinstance(value, Input):
            return TypeError(f"item {index} must be an Input, got {type(value).__name__}")
        modality = value.item.modality
        if modality not in self.runners:
            return ValueError(
                f"item {index} must be one of {sorted(self.runners)}, got {modality}; give the "
                "mixed runner a runner for it"
            )
        return incoming.refusal(value, index, self.runners[modality].encoder)

    def _distinct(self) -> list[EncoderRunner]:
        return list({id(runner): runner for runner in self.runners.values()}.values())
