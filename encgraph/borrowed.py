"""Hand out an output that still lies in a graph's slab, and refuse it once that was overwritten."""

from dataclasses import dataclass

from encgraph.encoders.protocol import EncoderOutput
from encgraph.errors import StaleBufferError
from encgraph.graphs import GraphSet


@dataclass(frozen=True, slots=True, eq=False)
class Borrowed:
    """An output that may still lie in the graph's own slab."""

    item: int
    """Index into the batch."""
    _output: EncoderOutput
    _graphs: GraphSet | None
    _generation: int

    def tensor(self) -> EncoderOutput:
        """The output, while it is still there.

        Raises:
            StaleBufferError: If a later replay of the same graph set has overwritten it, or begun to.
        """
        if self._graphs is not None and self._graphs.generation != self._generation:
            raise StaleBufferError(
                f"the borrowed output of item {self.item} was overwritten by a later replay; "
                "use it before the next batch, or call execute, which copies"
            )
        return self._output
