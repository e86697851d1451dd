"""Plan, capture, pack, replay, prove, measure and explain CUDA graphs for encoders."""

__version__ = "0.1.0"
