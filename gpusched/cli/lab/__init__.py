"""How are scenarios, simulations, faults and recorded clusters tried out from a shell? Part of the extra ``lab``."""
