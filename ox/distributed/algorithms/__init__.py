"""What is built on collectives. `torch.distributed.algorithms`."""
