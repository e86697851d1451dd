"""Undo what a broken capture leaves behind, so that the process can go on."""

import torch


def recover(device: torch.device) -> None:
    """Free the random generator, which believes it is still capturing, and what the pool held.

    Call it once the error is gone, whose frames hold what the forward allocated, and the graph that
    was not made, which holds the pool.

    Args:
        device: Where the capture was; a card.
    """
    generator = torch.cuda.default_generators[device.index or 0]
    generator.graphsafe_set_state(generator.clone_state())
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
