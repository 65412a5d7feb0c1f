"""`torch.layout`: how a tensor's elements are stored, by name."""

layout = str
strided = "strided"
sparse_coo = "sparse_coo"
