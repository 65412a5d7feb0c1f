"""What the server tells about itself: metrics, traces, logs."""
