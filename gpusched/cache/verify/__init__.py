"""Is the world still as the plan was decided on? The last look at each gang before it is bound and before pods are evicted for it."""
