"""The machine: kernels that replay a stock agent, from its queue to the ends of its jobs."""
