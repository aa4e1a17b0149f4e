"""Running the whole daemon in virtual time: see ``simulate``."""

from gpusched.simulate.runs import Outcome, SimulationOptions, World, simulate

__all__ = ["Outcome", "SimulationOptions", "World", "simulate"]
