"""Reinforcement learning of a vision-language model that writes web pages."""

__version__ = "0.1.0"
