"""Whether this process has arrays on a GPU. Until then no call looks for one."""

in_use = False  # set by ox.devices.cuda when the first array is made there
