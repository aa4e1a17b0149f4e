"""Where does the solver run? In a process of its own, asked one job at a time; its loss costs one decision."""
