"""BSP gangs: tasks that meet at a barrier after each superstep, and whose CPU shares are planned between supersteps."""
