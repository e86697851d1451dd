"""One encoder over several cards: the same runner on every rank of torch.distributed."""
