"""Ways in which DistributedDataParallel may average a bucket. `torch.distributed.algorithms.ddp_comm_hooks`."""
